package vfile

import (
	"errors"
	"sync/atomic"
)

// Kind is a set of kinds of operations.
type Kind uint16

// The kinds of operations.
const (
	KindCreate Kind = 1 << iota
	KindOpen
	KindRemove
	KindList
	KindSyncDir
	KindRead
	KindWrite
	KindSync
	KindAllocate
	KindDetach
	KindSize

	KindAll Kind = 1<<iota - 1
)

// Op is an operation about to be done.
type Op struct {
	Kind     Kind
	Name     string // file
	Off, Len int64
}

// Fault says what becomes of an operation. The zero value lets it be done.
type Fault struct {
	Err error
	// Done is how many bytes of a failing read or write are done all the same
	// (a torn write), cut to the operation's length.
	Done int64
}

// ErrInjected is the error of FailAt.
var ErrInjected = errors.New("vfile: injected fault")

// Faulty returns fsys with decide asked before every operation, possibly from
// many goroutines at once. An operation with a Fault is not done, save for
// Fault.Done bytes. Close and DropCache are never failed: there is nothing a
// caller could do about it.
func Faulty(fsys FS, decide func(Op) Fault) FS { return &faultyFS{fsys, decide} }

// FailAt fails the K-th (from 1) operation of the given Kinds, once, and
// counts them. Use its Decide with Faulty. The fields must not be changed
// once it is in use.
type FailAt struct {
	Kinds Kind
	K     int64
	Err   error // ErrInjected if nil
	Done  int64 // as in Fault
	// On: every operation from the K-th on fails, as on a disk that has died.
	On bool

	n atomic.Int64
}

// Decide says whether op is the one.
func (f *FailAt) Decide(op Op) Fault {
	if op.Kind&f.Kinds == 0 {
		return Fault{}
	}
	n := f.n.Add(1)
	if n < f.K || n > f.K && !f.On {
		return Fault{}
	}
	err := f.Err
	if err == nil {
		err = ErrInjected
	}
	return Fault{Err: err, Done: f.Done}
}

// Fired reports whether the K-th operation has come.
func (f *FailAt) Fired() bool { return f.n.Load() >= f.K }

type faultyFS struct {
	fs     FS
	decide func(Op) Fault
}

func (f *faultyFS) Create(name string) (File, error) {
	return f.file(KindCreate, name, f.fs.Create)
}

func (f *faultyFS) Open(name string) (File, error) {
	return f.file(KindOpen, name, f.fs.Open)
}

func (f *faultyFS) file(k Kind, name string, open func(string) (File, error)) (File, error) {
	if err := f.decide(Op{Kind: k, Name: name}).Err; err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, name, f.decide}, nil
}

func (f *faultyFS) Remove(name string) error {
	if err := f.decide(Op{Kind: KindRemove, Name: name}).Err; err != nil {
		return err
	}
	return f.fs.Remove(name)
}

func (f *faultyFS) List() ([]string, error) {
	if err := f.decide(Op{Kind: KindList}).Err; err != nil {
		return nil, err
	}
	return f.fs.List()
}

func (f *faultyFS) SyncDir() error {
	if err := f.decide(Op{Kind: KindSyncDir}).Err; err != nil {
		return err
	}
	return f.fs.SyncDir()
}

type faultyFile struct {
	File
	name   string
	decide func(Op) Fault
}

func (f *faultyFile) op(k Kind, off, n int64) Fault {
	return f.decide(Op{Kind: k, Name: f.name, Off: off, Len: n})
}

func (f *faultyFile) ReadAt(p []byte, off int64) error {
	return f.partly(KindRead, p, off, f.File.ReadAt)
}

func (f *faultyFile) ReadAtCold(p []byte, off int64) error {
	return f.partly(KindRead, p, off, f.File.ReadAtCold)
}

func (f *faultyFile) WriteAt(p []byte, off int64) error {
	return f.partly(KindWrite, p, off, f.File.WriteAt)
}

func (f *faultyFile) partly(k Kind, p []byte, off int64, do func([]byte, int64) error) error {
	ft := f.op(k, off, int64(len(p)))
	if ft.Err == nil {
		return do(p, off)
	}
	if n := min(ft.Done, int64(len(p))); n > 0 {
		return errors.Join(ft.Err, do(p[:n], off))
	}
	return ft.Err
}

func (f *faultyFile) Sync() error {
	if err := f.op(KindSync, 0, 0).Err; err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Allocate(off, n int64) error {
	if err := f.op(KindAllocate, off, n).Err; err != nil {
		return err
	}
	return f.File.Allocate(off, n)
}

func (f *faultyFile) Detach(off, n int64) error {
	if err := f.op(KindDetach, off, n).Err; err != nil {
		return err
	}
	return f.File.Detach(off, n)
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.op(KindSize, 0, 0).Err; err != nil {
		return 0, err
	}
	return f.File.Size()
}
