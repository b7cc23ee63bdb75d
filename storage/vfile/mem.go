package vfile

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
)

// Mem is a directory in memory that knows, page by page and name by name, what
// has been synced, so that tests can crash it. Files are sparse.
type Mem struct {
	mu    sync.RWMutex // guards everything below and every file's state
	live  map[string]*memNode
	saved map[string]*memNode // the directory as of the last SyncDir
	limit int64               // most bytes of all files together; 0: no limit
}

// NewMem returns an empty directory.
func NewMem() *Mem {
	return &Mem{live: map[string]*memNode{}, saved: map[string]*memNode{}}
}

// SetLimit makes Allocate fail with ENOSPC when all files together would be
// longer than n bytes. 0 takes the limit away.
func (m *Mem) SetLimit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

type page = [PageSize]byte

// memNode is a file's content. A page that is not dirty may be shared (with
// saved, with a clone) and is copied before it changes; a dirty one is owned.
// A page that is missing reads as zero.
type memNode struct {
	size, savedSize int64
	live, saved     map[int64]*page
	dirty           map[int64]struct{}
}

func newMemNode() *memNode {
	return &memNode{live: map[int64]*page{}, saved: map[int64]*page{}, dirty: map[int64]struct{}{}}
}

// Crash says how CrashClone crashes. The zero value loses all that was not synced.
type Crash struct {
	// Rand, if set, decides for each unsynced page, size and name on its own
	// whether it reached the disk, as it happens on real ones.
	Rand *rand.Rand
	// While, if set, runs while the directory stands still: a test that
	// crashes another store together with this one clones it here. What that
	// store has made durable by then can rest only on what is in this clone.
	While func()
}

// CrashClone returns a new directory with what a crash at this moment would
// leave. The old one goes on, apart from the clone.
func (m *Mem) CrashClone(c Crash) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.While != nil {
		c.While()
	}
	keep := func() bool { return c.Rand != nil && c.Rand.IntN(2) == 0 }

	names := map[string]*memNode{}
	for name, n := range m.saved {
		if m.live[name] != n && keep() {
			continue // an unsynced Remove that made it
		}
		names[name] = n
	}
	for _, name := range sortedKeys(m.live) {
		if m.saved[name] != m.live[name] && keep() {
			names[name] = m.live[name]
		}
	}
	out := NewMem()
	out.limit = m.limit
	for _, name := range sortedKeys(names) {
		n := names[name].crash(keep)
		out.live[name], out.saved[name] = n, n
	}
	return out
}

func (n *memNode) crash(keep func() bool) *memNode {
	c := newMemNode()
	c.size = n.savedSize
	if n.size != n.savedSize && keep() {
		c.size = n.size
	}
	for no, p := range n.saved {
		c.live[no] = p
	}
	for _, no := range sortedKeys(n.dirty) {
		if !keep() {
			continue
		}
		if p := n.live[no]; p != nil {
			cp := *p
			c.live[no] = &cp
		} else {
			delete(c.live, no)
		}
	}
	for no, p := range c.live {
		switch end := c.size - no*PageSize; {
		case end <= 0:
			delete(c.live, no)
		case end < PageSize:
			cp := *p
			clear(cp[end:])
			c.live[no] = &cp
		}
	}
	c.savedSize = c.size
	for no, p := range c.live {
		c.saved[no] = p
	}
	return c
}

// sortedKeys makes the order in which random numbers are drawn repeatable.
func sortedKeys[K int64 | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	n := newMemNode()
	m.live[name] = n
	return &memFile{fs: m, name: name, n: n}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.live[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{fs: m, name: name, n: n}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.live, name)
	return nil
}

// List implements FS.
func (m *Mem) List() ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return sortedKeys(m.live), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.saved)
	for name, n := range m.live {
		m.saved[name] = n
	}
	return nil
}

type memFile struct {
	fs     *Mem
	name   string
	n      *memNode
	closed bool // guarded by fs.mu
}

// check must be called with fs.mu held.
func (f *memFile) check(op string, off, n int64) error {
	switch {
	case f.closed:
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	case off < 0 || n < 0 || off+n < off:
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrInvalid}
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) error {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if err := f.check("read", off, int64(len(p))); err != nil {
		return err
	}
	if off+int64(len(p)) > f.n.size {
		return io.ErrUnexpectedEOF
	}
	for len(p) > 0 {
		no, in := off/PageSize, off%PageSize
		var c int
		if pg := f.n.live[no]; pg != nil {
			c = copy(p, pg[in:])
		} else {
			c = int(min(int64(len(p)), PageSize-in))
			clear(p[:c])
		}
		p, off = p[c:], off+int64(c)
	}
	return nil
}

func (f *memFile) ReadAtCold(p []byte, off int64) error { return f.ReadAt(p, off) }

func (f *memFile) WriteAt(p []byte, off int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write", off, int64(len(p))); err != nil {
		return err
	}
	f.n.size = max(f.n.size, off+int64(len(p)))
	for len(p) > 0 {
		no, in := off/PageSize, off%PageSize
		c := copy(f.n.own(no)[in:], p)
		p, off = p[c:], off+int64(c)
	}
	return nil
}

// own returns a page that only the live file refers to, marked dirty.
func (n *memNode) own(no int64) *page {
	pg := n.live[no]
	if _, dirty := n.dirty[no]; dirty && pg != nil {
		return pg
	}
	cp := new(page)
	if pg != nil {
		*cp = *pg
	}
	n.live[no] = cp
	n.dirty[no] = struct{}{}
	return cp
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("sync", 0, 0); err != nil {
		return err
	}
	n := f.n
	for no := range n.dirty {
		if p := n.live[no]; p != nil {
			n.saved[no] = p
		} else {
			delete(n.saved, no)
		}
	}
	clear(n.dirty)
	n.savedSize = n.size
	return nil
}

func (f *memFile) Allocate(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("allocate", off, n); err != nil {
		return err
	}
	if f.fs.limit > 0 {
		total := max(f.n.size, off+n) - f.n.size
		for _, o := range f.fs.live {
			total += o.size
		}
		if total > f.fs.limit {
			return &fs.PathError{Op: "allocate", Path: f.name, Err: syscall.ENOSPC}
		}
	}
	f.n.size = max(f.n.size, off+n)
	return nil
}

func (f *memFile) Detach(off, n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("detach", off, n); err != nil {
		return err
	}
	if off%PageSize != 0 || n%PageSize != 0 {
		return fmt.Errorf("vfile: detach [%d,+%d) is not aligned", off, n)
	}
	for no := off / PageSize; no < (off+n)/PageSize; no++ {
		if f.n.live[no] != nil {
			delete(f.n.live, no)
			f.n.dirty[no] = struct{}{}
		}
	}
	return nil
}

func (f *memFile) DropCache(off, n int64) error {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	return f.check("drop", off, n)
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	return f.n.size, f.check("size", 0, 0)
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.check("close", 0, 0)
	f.closed = true
	return err
}
