//go:build fabric && cgo

package fabric

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSink delivers layers of n slices that lie in the page cache to a
// client in another process, by several readers as deliver has them, and does the
// same work in a bare loop: pread into registered memory and a write of it. The
// two take turns, each delivery of one beside one of the other; "of-limit" is
// the ratio of their median rates, "of-best" that of their best.
//
//	go test -tags fabric -run - -bench Sink ./transport/fabric
func BenchmarkSink(b *testing.B) {
	for _, c := range []struct {
		name     string
		n, slice int
		write    int
		readers  int
	}{
		{"n=224/S=64KiB/write=1MiB", 224, 64 << 10, 1 << 20, 2},
		{"n=14/S=1MiB/write=1MiB", 14, 1 << 20, 1 << 20, 2},
		{"n=896/S=16KiB/write=1MiB", 896, 16 << 10, 1 << 20, 2},
		{"n=224/S=64KiB/write=512KiB", 224, 64 << 10, 512 << 10, 2},
		{"n=224/S=64KiB/write=2MiB", 224, 64 << 10, 2 << 20, 2},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := first()
			cfg.WriteBytes = c.write
			benchSink(b, cfg, c.n, c.slice, c.readers)
		})
	}
}

func benchSink(b *testing.B, cfg Config, n, slice, readers int) {
	const layers = 4
	file := chunks(b, n*layers*slice)
	// A slice of chunk j and layer l lies at (j*layers+l)*slice.
	read := func(p []byte, off int64) error {
		j, l, in := int(off)/slice%n, int(off)/slice/n, int(off)%slice
		for len(p) > 0 {
			k, err := unix.Pread(int(file.Fd()), p[:min(len(p), slice-in)], int64((j*layers+l)*slice+in))
			if err != nil {
				return err
			}
			if p, in = p[k:], in+k; in == slice {
				in, j = 0, j+1
				if j == n {
					j, l = 0, l+1
				}
			}
		}
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	cmd := another(b, cfg, roleVictim, l.Addr().String())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var h helloMsg
	if err := json.NewDecoder(c).Decode(&h); err != nil {
		b.Fatal(err)
	}
	d := newDomain(b, cfg)
	r, err := d.Remote(h.Address)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	total := int64(n * layers * slice)
	if total > h.Address.Length {
		b.Fatalf("the client has %d bytes, not %d", h.Address.Length, total)
	}
	b.SetBytes(total)
	var ours, limit []time.Duration
	var spent time.Duration
	var tag int64
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		took, err := Limit(cfg, h.Address, total, slice, read)
		if err != nil {
			b.Fatal(err)
		}
		limit = append(limit, took)
		before := cpu(b)
		b.StartTimer()
		start := time.Now()
		tr, err := r.Open(b.Context(), Window{Length: total, Tag: tag, Layers: layers})
		if err != nil {
			b.Fatal(err)
		}
		tag++
		if err := deliverAll(tr, n, layers, slice, readers, read); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(start))
		spent += cpu(b) - before
	}
	// The median: whatever else the machine does hits single deliveries.
	slices.Sort(ours)
	slices.Sort(limit)
	mid := b.N / 2
	b.ReportMetric(float64(total)/ours[mid].Seconds()/1e6, "median-MB/s")
	b.ReportMetric(float64(total)/limit[mid].Seconds()/1e6, "limit-MB/s")
	b.ReportMetric(limit[mid].Seconds()/ours[mid].Seconds(), "of-limit")
	b.ReportMetric(limit[0].Seconds()/ours[0].Seconds(), "of-best")
	b.ReportMetric(spent.Seconds()/(float64(total)*float64(b.N)/1e9), "cpu-s/GB")
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// deliverAll feeds a sink as deliver does: readers take runs of neighbouring
// slices, and the last one done with a layer announces it.
func deliverAll(tr *Transfer, n, layers, slice, readers int, read func([]byte, int64) error) error {
	per := max(1, min(tr.Gather()/slice, n/readers))
	groups := (n + per - 1) / per
	left := make([]atomic.Int32, layers)
	for l := range left {
		left[l].Store(int32(groups))
	}
	var next atomic.Int64
	var mu sync.Mutex
	announced := 0
	var failed error
	one := func(i int) error {
		l, g := i/groups, i%groups
		for j := g * per; j < min((g+1)*per, n); j++ {
			off := int64(l*n+j) * int64(slice)
			for end := off + int64(slice); off < end; {
				p, err := tr.Grab(off, int(end-off))
				if err != nil {
					return err
				}
				if err := read(p, off); err != nil {
					return err
				}
				if err := tr.Commit(off, len(p)); err != nil {
					return err
				}
				off += int64(len(p))
			}
		}
		if left[l].Add(-1) > 0 {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for ; announced < layers && left[announced].Load() == 0; announced++ {
			if err := tr.LayerReady(announced); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= groups*layers {
					return
				}
				if err := one(i); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := tr.Close(); err != nil {
		return err
	}
	return failed
}

// chunks is a file of n bytes in the page cache.
func chunks(b *testing.B, n int) *os.File {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "chunks"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	block := turn(0)[:1<<16]
	for ; n > 0; n -= len(block) {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	return f
}
