// Package vfile is the file layer under storage/volume: what a volume needs of
// files, no more. OS is the real one; Mem is one in memory that can crash;
// Faulty wraps either and fails where it is told to.
package vfile

import "errors"

// PageSize is the granularity, in bytes, of Detach and of what a crash keeps.
const PageSize = 4 << 10

// ErrUnsupported says that the file system lacks an operation that has no
// substitute.
var ErrUnsupported = errors.New("vfile: not supported by the file system")

// FS is one flat directory of files. Names hold no separator. Errors match
// io/fs.ErrExist, fs.ErrNotExist and fs.ErrClosed, and syscall.ENOSPC for a
// full disk. All methods may be called concurrently.
type FS interface {
	// Create makes a new empty file, open for reading and writing. The name
	// survives a crash only after SyncDir.
	Create(name string) (File, error)
	// Open opens a file that exists for reading and writing.
	Open(name string) (File, error)
	// Remove removes the name; it may come back after a crash before SyncDir.
	Remove(name string) error
	// List returns the names of all files, in order.
	List() ([]string, error)
	// SyncDir makes every Create and Remove that has returned durable.
	SyncDir() error
}

// File is an open file. All methods may be called concurrently; operations on
// a closed file fail with fs.ErrClosed, and Close lets running ones end.
// Offsets and lengths are in bytes.
type File interface {
	// ReadAt fills p or fails; a read past the end is io.ErrUnexpectedEOF.
	ReadAt(p []byte, off int64) error
	// ReadAtCold is ReadAt for bytes that will not be wanted again soon: pages
	// that were not cached before are, where the system can do it, not cached
	// after. What was cached already stays.
	ReadAtCold(p []byte, off int64) error
	// WriteAt writes all of p or fails, after which the range holds any mix of
	// old and new bytes. p is not kept.
	WriteAt(p []byte, off int64) error
	// Sync returns when every write, Allocate and Detach that had returned
	// before the call is durable. After an error nothing is known about any
	// write since the last successful Sync, and a second Sync that succeeds
	// proves nothing: the kernel may have dropped the pages it could not write.
	Sync() error
	// Allocate gives [off, off+n) room on the device and grows the file to
	// hold it. New bytes read as zero.
	Allocate(off, n int64) error
	// Detach makes [off, off+n), both multiples of PageSize, read as zero and
	// cuts the range's pages loose from the file. Whoever still holds such a
	// page (a socket that sendfile filled) keeps the bytes it had; a later
	// write goes to other pages. That holds for ranges that no single WriteAt
	// reached over the border of (pages written together may be one to the
	// kernel), and for pages cached by reading as OSByReference says. The
	// range keeps its room on the device where the file system can do that.
	Detach(off, n int64) error
	// DropCache asks that pages wholly inside [off, off+n) leave the page
	// cache. It is a hint: written pages that are not synced stay.
	DropCache(off, n int64) error
	// Size returns the file's length.
	Size() (int64, error)
	Close() error
}
