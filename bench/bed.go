package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"github.com/objcached/objcached/client"
)

// BareServer is a BareHandler that runs.
type BareServer struct {
	URL  string
	PID  int // to measure its processor time
	Stop func() error
}

// bed is what the things of a benchmark share: the chunks in the store and in
// the bare loops' file, and the memory that everything ends in.
type bed struct {
	b      *Layerwise
	c      *client.Client
	core   minio.Core
	keys   []string
	file   *bareFile
	bare   *bareClient
	marked *bareClient // its reader has a low-water mark
	server BareServer
	dst    []byte
	shared *client.Buffer // whose memory dst is; nil for response bodies
	fabric *fabricLimit   // nil unless it is measured
	undo   []func() error
}

// close undoes what prepare did, the last first.
func (d *bed) close() error {
	var errs []error
	for _, f := range slices.Backward(d.undo) {
		errs = append(errs, f())
	}
	d.undo = nil
	return errors.Join(errs...)
}

// prepare stores the chunks and makes everything else. The caller closes what
// it gets.
func (b *Layerwise) prepare(ctx context.Context) (_ *bed, err error) {
	d := &bed{b: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := b.connect(d); err != nil {
		return nil, err
	}
	if d.keys, err = b.keys(); err != nil {
		return nil, err
	}
	if !b.Keep {
		d.undo = append(d.undo, func() error { return removeAll(d.c, d.keys) })
	}
	if err := b.fill(ctx, d.c, d.keys); err != nil {
		return nil, err
	}
	file := filepath.Join(b.Dir, "bare-chunks")
	bar := b.Progress("writing the bare loops' file", int64(b.Chunks))
	err = writeChunkFile(file, b.Geometry, bar.Add)
	bar.Done()
	d.undo = append(d.undo, func() error { return os.Remove(file) })
	if err != nil {
		return nil, err
	}
	if d.file, err = openBareFile(file, b.Geometry); err != nil {
		return nil, err
	}
	d.undo = append(d.undo, d.file.Close)
	if d.server, err = b.StartBare(ctx, file, b.Geometry); err != nil {
		return nil, err
	}
	d.undo = append(d.undo, d.server.Stop)
	if err := d.memory(ctx); err != nil {
		return nil, fmt.Errorf("memory for %s of payload: %w", byteSize(b.Payload()), err)
	}
	d.undo = append(d.undo, d.release)
	if b.Fabric.Provider != "" {
		if d.fabric, err = newFabricLimit(b.Fabric, d.server.URL, b.Geometry); err != nil {
			return nil, err
		}
		d.undo = append(d.undo, d.fabric.Close)
	}

	bar = b.Progress("finding the bare loops' best write sizes", int64(2*3*len(writeSizes)))
	defer bar.Done()
	for _, loop := range []struct {
		c      **bareClient
		marked bool
	}{{&d.bare, false}, {&d.marked, true}} {
		tr := newBareTransport(loop.marked)
		tr.MaxIdleConnsPerHost = b.Concurrency
		d.undo = append(d.undo, func() error { tr.CloseIdleConnections(); return nil })
		*loop.c = &bareClient{http: &http.Client{Transport: tr}, url: d.server.URL, g: b.Geometry}
		if err := (*loop.c).bestWrite(ctx, d.dst, 3, bar.Add); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// connect makes the clients of the target.
func (b *Layerwise) connect(d *bed) error {
	c, plain, err := b.clients()
	if err != nil {
		return err
	}
	d.c, d.core = c, minio.Core{Client: plain}
	d.undo = append(d.undo, func() error { c.Close(); return nil })
	return nil
}

// memory makes the memory that everything ends in, with its pages in place: a
// registered buffer if shared memory or a fabric is measured.
func (d *bed) memory(ctx context.Context) (err error) {
	if d.b.Shm || d.b.Fabric.Provider != "" {
		if d.shared, err = d.c.Register(ctx, d.b.Payload()); err == nil {
			d.dst = d.shared.Bytes()
		}
		return err
	}
	d.dst, err = unix.Mmap(-1, 0, int(d.b.Payload()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	return err
}

func (d *bed) release() error {
	dst, shared := d.dst, d.shared
	d.dst, d.shared = nil, nil
	switch {
	case shared != nil:
		return shared.Close()
	case dst != nil:
		return unix.Munmap(dst)
	}
	return nil
}
