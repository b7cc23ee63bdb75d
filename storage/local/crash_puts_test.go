package local

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
	"github.com/objcached/objcached/storage/vfile"
)

// TestCrashUnderPuts cuts the power twenty times, each time under 1,000
// concurrent puts, and drops everything not yet synced. What was acknowledged
// in any round is there and whole in all later ones; what was not is absent or
// whole.
func TestCrashUnderPuts(t *testing.T) {
	const puts = 1000
	rounds := 20
	if testing.Short() || raceEnabled {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(20, 26))
	s := openMem(t, vfs.NewCrashableMem(), vfile.NewMem())
	if err := s.CreateBucket(t.Context(), storage.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	// Objects of one round: the seed of a key's bytes tells round and writer.
	sizes := []int{0, 100, storage.InlineLimit, storage.InlineLimit + 1, 9_000, 20_000}
	content := func(round, i int) []byte {
		return storagetest.Pattern(uint64(round*puts+i), sizes[i%len(sizes)])
	}
	key := func(round, i int) string { return fmt.Sprintf("r%02d/%04d", round, i) }
	kept := map[[2]int]bool{} // acknowledged and not deleted: round, writer
	lost := 0
	for round := range rounds {
		var acked [puts]atomic.Bool
		var at [puts]bool // acknowledged by the time of the crash
		var meta *vfs.MemFS
		var volumes *vfile.Mem
		var ops atomic.Int64
		crashAt := int64(1 + r.IntN(2*puts))
		metaRand := rand.New(rand.NewPCG(r.Uint64(), 1))
		crash := func() {
			for i := range acked {
				at[i] = acked[i].Load()
			}
			volumes = s.volumes.CrashClone(vfile.Crash{While: func() {
				meta = s.meta.CrashClone(vfs.CrashCloneCfg{RNG: metaRand})
			}})
		}
		onOp := func() {
			if ops.Add(1) == crashAt {
				crash()
			}
		}
		s.onOp.Store(&onOp)
		var wg sync.WaitGroup
		for i := range puts {
			wg.Go(func() {
				p := content(round, i)
				_, err := s.Put(t.Context(), "b", key(round, i), bytes.NewReader(p), storage.PutOptions{Size: int64(len(p)), Chain: storage.Chain{Index: -1}})
				if err != nil {
					t.Errorf("put %d: %v", i, err)
					return
				}
				acked[i].Store(true)
			})
		}
		wg.Wait()
		s.onOp.Store(nil)
		if ops.Load() < crashAt { // few flushes: the crash comes after the last put
			crash()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openMem(t, meta, volumes)
		for i := range puts {
			if at[i] {
				kept[[2]int{round, i}] = true
				continue
			}
			lost++
			o, err := s.Open(t.Context(), "b", key(round, i))
			if storage.IsNoSuchKey(err) {
				continue
			}
			if err != nil {
				t.Fatalf("round %d, unacknowledged %s: %v", round, key(round, i), err)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			expect(t, s, key(round, i), content(round, i))
		}
		for k := range kept {
			expect(t, s, key(k[0], k[1]), content(k[0], k[1]))
		}
		s.mustBeClean(t)
		// Make room: the store is small, and deletes must survive as well.
		for k := range kept {
			if r.IntN(8) > 0 {
				if err := s.Delete(t.Context(), "b", key(k[0], k[1]), storage.Condition{}); err != nil {
					t.Fatal(err)
				}
				delete(kept, k)
			}
		}
	}
	if lost == 0 || lost == rounds*puts {
		t.Errorf("%d of %d puts were cut off: the crashes came too late or too early", lost, rounds*puts)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
