package tenant

import (
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// RootFile is the name of the file that keeps the root pair.
const RootFile = "root-credentials.yaml"

// NewRoot makes the root identity of a pair of keys.
func NewRoot(accessKey, secretKey string) (Identity, error) {
	if reason := checkAccessKey(accessKey); reason != "" {
		return Identity{}, fmt.Errorf("the root access key %s", reason)
	}
	if reason := checkSecret(secretKey); reason != "" {
		return Identity{}, fmt.Errorf("the root secret key %s", reason)
	}
	return Identity{AccessKey: accessKey, SecretKey: secretKey, Root: true}, nil
}

// LoadOrCreateRoot reads the root pair kept in dir, or makes one from random
// and keeps it there, readable by the owner alone. The file appears whole or
// not at all, and is durable on return; of several callers at once one creates
// it and all get the same pair. A file that others can read, or that is
// damaged, is an error and is left as it is.
func LoadOrCreateRoot(dir string, random io.Reader) (id Identity, created bool, err error) {
	path := filepath.Join(dir, RootFile)
	if id, err = loadRoot(path); !errors.Is(err, fs.ErrNotExist) {
		return id, false, err
	}
	var raw [13 + 30]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return Identity{}, false, fmt.Errorf("making the root pair: %w", err)
	}
	accessKey := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw[:13])[:20]
	secretKey := base64.RawURLEncoding.EncodeToString(raw[13:])
	if id, err = NewRoot(accessKey, secretKey); err != nil {
		return Identity{}, false, err
	}
	text := fmt.Sprintf("# The root pair of this store. Delete the file to have another one made.\naccess_key: %q\nsecret_key: %q\n", accessKey, secretKey)
	switch err := createFile(path, []byte(text)); {
	case errors.Is(err, fs.ErrExist): // someone was faster
		id, err = loadRoot(path)
		return id, false, err
	case err != nil:
		return Identity{}, false, fmt.Errorf("keeping the root pair: %w", err)
	}
	return id, true, nil
}

func loadRoot(path string) (Identity, error) {
	data, mode, err := readFile(path)
	if err != nil {
		return Identity{}, err
	}
	if mode.Perm()&0o077 != 0 {
		return Identity{}, fmt.Errorf("%s holds the root secret and others can read or change it (mode %04o); run chmod 600 on it", path, mode.Perm())
	}
	n, err := document(data)
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
	f, err := mapping(n, "the file", "access_key", "secret_key")
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
	id := Identity{Root: true}
	if id.AccessKey, err = text(n, f["access_key"], "access_key", checkAccessKey); err == nil {
		id.SecretKey, err = text(n, f["secret_key"], "secret_key", checkSecret)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", path, err)
	}
	return id, nil
}

// createFile makes a durable file of mode 0600 that is whole from the moment
// it has its name. fs.ErrExist if the name is taken.
func createFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".tmp*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.Remove(f.Name()))
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, does not replace what another caller made.
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
