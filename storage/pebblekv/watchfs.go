package pebblekv

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchFS looks at the write-ahead log's files and at directories. Where
// Pebble meets an error there it panics sooner or later, in some goroutine and
// with a lock in a state that turns the panic into a bare runtime error. watchFS
// sees the error first, so that Apply refuses at once and the process, where it
// must end, ends with a message that says why.
//
// While the store opens or closes, errors are left to Pebble, which returns them.
type watchFS struct {
	vfs.FS
	s *Store
}

func (w watchFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	return w.log(name, f, err)
}

func (w watchFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, c)
	return w.log(newname, f, err)
}

func (w watchFS) log(name string, f vfs.File, err error) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f, err
	}
	if err != nil {
		if w.s.working() {
			w.s.die(fmt.Sprintf("new write-ahead log: %v", err))
		}
		return nil, err
	}
	return &logFile{File: f, s: w.s}, nil
}

func (w watchFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return dirFile{f, w.s, name}, nil
}

func (w watchFS) Unwrap() vfs.FS { return w.FS }

// logFile is a log being written.
type logFile struct {
	vfs.File
	s      *Store
	failed atomic.Bool
}

// note looks at an error. After the first one Pebble touches the log only to
// finish it, which it does when it wants to change to a new log, and panics
// when that fails; so a second error, or Close, is the moment to end.
func (f *logFile) note(err error) error {
	if err == nil || !f.s.working() {
		return err
	}
	cause := f.s.fail(err)
	if f.failed.Swap(true) {
		f.s.die(fmt.Sprintf("write-ahead log cannot be finished: %v", cause))
	}
	return err
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.note(err)
}

func (f *logFile) Sync() error     { return f.note(f.File.Sync()) }
func (f *logFile) SyncData() error { return f.note(f.File.SyncData()) }

func (f *logFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	return full, f.note(err)
}

func (f *logFile) Close() error {
	err := f.note(f.File.Close())
	if f.failed.Load() && f.s.working() {
		f.s.die(fmt.Sprintf("write-ahead log cannot be finished: %v", f.s.failure()))
	}
	return err
}

type dirFile struct {
	vfs.File
	s    *Store
	name string
}

func (f dirFile) Sync() error {
	err := f.File.Sync()
	if err != nil && f.s.working() {
		f.s.die(fmt.Sprintf("flush of directory %s: %v", f.name, err))
	}
	return err
}
