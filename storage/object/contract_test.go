package object

import (
	"testing"

	"github.com/objcached/objcached/storage"
	"github.com/objcached/objcached/storage/storagetest"
)

// testStore is a store in memory with its two halves.
type testStore struct {
	*Store
	w    *world
	meta *memMeta
	blob *memBlob
}

func openMem(t testing.TB, m *memMeta, b *memBlob, o Options) *testStore {
	t.Helper()
	s, err := Open(t.Context(), m, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return &testStore{Store: s, w: m.w, meta: m, blob: b}
}

func newMem(t testing.TB, size int64, o Options) *testStore {
	w := new(world)
	return openMem(t, newMemMeta(w), newMemBlob(w, size), o)
}

func (s *testStore) checkMisuse(t testing.TB) {
	t.Helper()
	s.w.faultMu.Lock()
	defer s.w.faultMu.Unlock()
	for _, err := range s.w.misuse {
		t.Error("byte store misused:", err)
	}
}

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name    string
		longest int64
		verify  storage.VerifyMode
	}{
		{"whole", 0, storage.VerifyAlways},
		{"fragments", 36 << 10, storage.VerifyFirstRead},
	} {
		if raceEnabled && c.longest == 0 {
			continue // the other has all its concurrency, and the bitmaps too
		}
		t.Run(c.name, func(t *testing.T) {
			storagetest.Run(t, func(t *testing.T) storage.Store {
				s := newMem(t, 64<<20, Options{Verify: c.verify})
				s.blob.longest = c.longest
				t.Cleanup(func() { s.checkMisuse(t) })
				return s
			})
		})
	}
}
