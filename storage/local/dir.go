package local

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	storeFile  = "STORE"
	lockFile   = "LOCK"
	metaDir    = "meta"
	volumesDir = "volumes"
)

// Version is the version of the directory's layout.
const Version = 1

// identity is the content of STORE.
type identity struct {
	Version int       `json:"version"`
	UUID    string    `json:"uuid"`
	Created time.Time `json:"created"`
}

// VersionError says that a store was written by a newer program.
type VersionError struct {
	Dir       string
	Have, Max int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("local: the store in %s has version %d; this program knows up to %d", e.Dir, e.Have, e.Max)
}

// identify reads STORE, or writes it in a directory that holds no store.
func identify(dir string, now time.Time, random io.Reader) (identity, error) {
	path := filepath.Join(dir, storeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(dir, now, random)
	}
	if err != nil {
		return identity{}, fmt.Errorf("local: %w", err)
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.Version < 1 {
		return identity{}, fmt.Errorf("local: %s does not describe a store", path)
	}
	if id.Version > Version {
		return identity{}, &VersionError{Dir: dir, Have: id.Version, Max: Version}
	}
	if id.UUID == "" {
		return identity{}, fmt.Errorf("local: %s has no UUID", path)
	}
	return id, nil
}

func create(dir string, now time.Time, random io.Reader) (identity, error) {
	for _, name := range []string{metaDir, volumesDir} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return identity{}, fmt.Errorf("local: %s has %s but no %s: not a store, or a damaged one", dir, name, storeFile)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return identity{}, fmt.Errorf("local: %w", err)
		}
	}
	if random == nil {
		random = rand.Reader
	}
	var raw [16]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return identity{}, fmt.Errorf("local: no random bytes for a UUID: %w", err)
	}
	raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80 // RFC 9562, version 4
	x := hex.EncodeToString(raw[:])
	id := identity{Version: Version, Created: now.UTC().Truncate(time.Second),
		UUID: x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]}
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return identity{}, err
	}
	return id, writeFile(filepath.Join(dir, storeFile), append(b, '\n'))
}

// writeFile makes a whole file appear under path, durably.
func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return nil
}

// holder is the content of LOCK.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// LockedError says who has a store open.
type LockedError struct {
	Dir    string
	Holder string
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("local: the store in %s is in use by %s", e.Dir, e.Holder)
}

// acquire takes the directory's lock, which goes with the file: closing it,
// or the end of the process, lets go.
func acquire(dir string, now time.Time) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, &LockedError{Dir: dir, Holder: readHolder(f)}
	}
	if err == nil {
		err = writeHolder(f, now)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("local: lock %s: %w", dir, err)
	}
	return f, nil
}

func writeHolder(f *os.File, now time.Time) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	b, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Since: now.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(b, '\n'), 0)
	return err
}

func readHolder(f *os.File) string {
	var h holder
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(b, &h) != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d on %s since %s", h.PID, h.Host, h.Since.Format(time.RFC3339))
}
