//go:build fabric && cgo

package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
)

// serverEnv makes this test binary a server on a directory, that is to be killed.
const serverEnv = "OBJCACHED_TEST_FABRIC_SERVER"

func init() {
	dir := os.Getenv(serverEnv)
	if dir == "" {
		return
	}
	o := Options{Dir: dir, Listen: "127.0.0.1:0", Capacity: 256 << 20, RootAccessKey: rootKey, RootSecretKey: rootSecret}
	fabricWay("tcp;ofi_rxm").options(&o, dir)
	s, err := Open(context.Background(), o, io.Discard)
	if err == nil {
		err = s.Run(context.Background(), os.Stdout)
	}
	fmt.Println("server:", err)
	os.Exit(1)
}

// startServer starts one and returns its URL.
func startServer(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless the test has
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return cmd, url
}

// TestFabricServerLost: a server that is killed, or hangs, in the middle of a
// transfer is an error soon, and the buffer is its owner's alone from then on:
// also when the server that hung goes on.
func TestFabricServerLost(t *testing.T) {
	if m := newHandFabric(t, "tcp;ofi_rxm", 4096); m.Memory == nil {
		t.Fatal("no memory")
	}
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprintf("hang=%v", hang), func(t *testing.T) {
			cmd, url := startServer(t, t.TempDir())
			c, err := kv.New(kv.Config{Endpoint: url, AccessKey: rootKey, SecretKey: rootSecret, Bucket: "kvs", FabricNode: "127.0.0.1",
				HeaderTimeout: 2 * time.Second, MemoryProvider: "tcp;ofi_rxm"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.S3().MakeBucket(t.Context(), "kvs", minio.MakeBucketOptions{}); err != nil {
				t.Fatal(err)
			}
			const layers = 16
			keys := put(t, c, 4, layers<<20)
			buf, err := c.Register(t.Context(), 4*layers<<20)
			if err != nil {
				t.Fatal(err)
			}
			idle, err := c.Register(t.Context(), 8192)
			if err != nil {
				t.Fatal(err)
			}
			req := kv.GetRequest{Keys: keys, NumLayers: layers, PerLayerChunkBytes: 1 << 20}
			var lost *kv.Error
			for lost == nil { // until one is caught in the middle
				tr, err := c.GetLayersInto(t.Context(), req, buf, descriptor.Target{})
				if err != nil {
					t.Fatal(err)
				}
				if err := tr.WaitLayer(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				sig := unix.SIGKILL
				if hang {
					sig = unix.SIGSTOP
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := tr.Wait(ctx); err == nil && !hang {
					break // it was faster than the signal: what follows holds too
				} else if err == nil {
					if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
						t.Fatal(err)
					}
					continue
				} else if !errors.As(err, &lost) {
					t.Fatal(err)
				}
				for l := range lost.LayersReady {
					for j := range keys {
						if !bytes.Equal(buf.Bytes()[(l*len(keys)+j)<<20:][:1<<20], slice(&req, j, l)) {
							t.Errorf("layer %d counts as ready and chunk %d of it is wrong", l, j)
						}
					}
				}
				select {
				case <-buf.Lost():
				case <-ctx.Done():
					t.Fatal("the buffer is not lost")
				}
			}
			after := bytes.Clone(buf.Bytes())
			if hang {
				if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				// It writes what it can, and is done when it answers another.
				if _, err := c.Register(t.Context(), 4096); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(buf.Bytes(), after) {
				t.Error("the buffer was written to when it was lost")
			}
			if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: keys[0]}, buf); err == nil {
				t.Error("an object came into a lost buffer")
			}
			if !hang {
				if _, err := c.PutObjectFrom(t.Context(), kv.PutRequest{Key: "k", Count: 1}, idle); err == nil {
					t.Error("an object went to a server that is dead")
				}
			}
			if err := errors.Join(buf.Close(), idle.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFabricHandleForgotten: a server that was started again knows no handle;
// the buffer is lost when it says so.
func TestFabricHandleForgotten(t *testing.T) {
	r, c, keys := fabricWay("tcp;ofi_rxm").start(t, 1, 4096)
	buf, err := c.Register(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	r.s.cfg.Memory.(*memory).reg.Expire() // none is due
	if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: keys[0]}, buf); err != nil {
		t.Fatal(err)
	}
	other, err := c.Register(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, tr := range r.s.cfg.Memory.(*memory).transports {
		if err := tr.Close(); err != nil { // all that it knew is gone
			t.Fatal(err)
		}
	}
	if _, err := c.GetObjectInto(t.Context(), kv.ObjectRequest{Key: keys[0]}, buf); code(err) != "InvalidArgument" {
		t.Errorf("%v", err)
	}
	select {
	case <-buf.Lost():
	case <-time.After(time.Minute):
		t.Error("the buffer is not lost")
	}
}
