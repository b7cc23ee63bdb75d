package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/objcached/objcached/storage/meta"
)

// stripes is the number of locks that keys are hashed onto. They are held for
// the lookups of a batch's conditions and its insertion in the memtable, some
// microseconds, never for a flush; two keys on one stripe cost little.
const stripes = 1024

// Apply implements meta.Store.
//
// Keys written are locked, keys that only conditions name are shared, so that
// puts conditional on one bucket marker run side by side. Locks are taken in
// stripe order and let go as soon as the batch is visible and its place in the
// log is fixed; then Apply waits for the log to be flushed, together with
// everybody else (Pebble groups flushes). A batch whose conditions rest on one
// that is not durable yet comes after it in the log, and so never survives it.
//
// When the log fails, this and every later Apply return ErrFailed. Whether the
// batch that met the failure has happened is known only when the store is
// opened again; until then reads may see it.
func (s *Store) Apply(ctx context.Context, partition string, b *meta.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.gate.enter() {
		return meta.ErrClosed
	}
	defer s.gate.leave()
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := p.build(s.seed, partition, b); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return err
	}
	// A caller told of a conflict acts on what it conflicted with ("the key
	// exists, so my chunk is stored"), and one whose conditions held acts on
	// those: both rest on batches that must be durable first.
	pb, err := s.insert(p, b)
	if err != nil || pb == nil {
		return errors.Join(s.settle(), err)
	}
	return s.await(pb)
}

// insert checks b's conditions and puts it into the log and the memtable. It
// returns no batch if there is nothing to write.
func (s *Store) insert(p *plan, b *meta.Batch) (*pebble.Batch, error) {
	p.lock(&s.locks)
	defer p.unlock(&s.locks)
	for i, c := range b.Conds {
		if err := s.check(p.key(i), c); err != nil {
			return nil, err
		}
	}
	if len(b.Ops) == 0 {
		return nil, nil
	}
	pb := s.db.NewBatchWithSize(p.bytes)
	for i, op := range b.Ops {
		var err error
		if op.Delete {
			err = pb.Delete(p.key(len(b.Conds)+i), nil)
		} else {
			err = pb.Set(p.key(len(b.Conds)+i), op.Value, nil)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("pebblekv: apply: %w", err), pb.Close())
		}
	}
	s.unsynced.Add(1) // before it is visible
	if err := s.commit(pb); err != nil {
		s.unsynced.Add(-1)
		return nil, err
	}
	return pb, nil
}

// commit hands pb to Pebble. Pebble panics, with its commit lock held, when
// the log has failed under it; others would wait for that lock for ever, so
// the process must end.
func (s *Store) commit(pb *pebble.Batch) error {
	defer func() {
		if r := recover(); r != nil {
			s.die(fmt.Sprintf("commit: %v", r))
			panic(r) // Fatal returned
		}
	}()
	if err := s.db.ApplyNoSyncWait(pb, pebble.Sync); err != nil {
		return s.fail(err)
	}
	return s.failure()
}

func (s *Store) check(key []byte, c meta.Cond) error {
	v, closer, err := s.db.Get(key)
	if err != nil {
		switch err = getError(err); {
		case errors.Is(err, meta.ErrNotFound) && c.Absent:
			return nil
		case errors.Is(err, meta.ErrNotFound):
			return meta.ErrConflict
		}
		return err
	}
	holds := !c.Absent && bytes.Equal(v, c.Value)
	if err := closeError(closer); err != nil {
		return err
	}
	if !holds {
		return meta.ErrConflict
	}
	return nil
}

func (s *Store) await(pb *pebble.Batch) error {
	err := pb.SyncWait()
	s.unsynced.Add(-1)
	if err != nil {
		return s.fail(err)
	}
	if err := pb.Close(); err != nil {
		return fmt.Errorf("pebblekv: apply: %w", err)
	}
	return nil
}

// settle returns when every batch that was visible before the call is durable.
func (s *Store) settle() error {
	if s.unsynced.Load() == 0 {
		return s.failure()
	}
	pb := s.db.NewBatch()
	if err := pb.LogData(nil, nil); err != nil {
		return errors.Join(fmt.Errorf("pebblekv: apply: %w", err), pb.Close())
	}
	s.unsynced.Add(1)
	if err := s.commit(pb); err != nil {
		s.unsynced.Add(-1)
		return err
	}
	return s.await(pb)
}

// plan is the keys of a batch, encoded, and the stripes they lock.
type plan struct {
	buf   []byte
	ends  []int    // of key i in buf: conditions first, then operations
	locks []uint32 // stripe<<1, plus 1 if only shared; sorted, one per stripe
	bytes int      // of keys and values to be written, about
}

var plans = sync.Pool{New: func() any { return new(plan) }}

func (p *plan) key(i int) []byte {
	if i == 0 {
		return p.buf[:p.ends[0]]
	}
	return p.buf[p.ends[i-1]:p.ends[i]]
}

func (p *plan) build(seed maphash.Seed, partition string, b *meta.Batch) error {
	p.buf, p.ends, p.locks, p.bytes = p.buf[:0], p.ends[:0], p.locks[:0], 16
	for _, c := range b.Conds {
		if err := p.add(seed, partition, c.Key, 1); err != nil {
			return err
		}
	}
	for _, op := range b.Ops {
		if err := p.add(seed, partition, op.Key, 0); err != nil {
			return err
		}
		p.bytes += len(partition) + len(op.Key) + len(op.Value) + 16
	}
	slices.Sort(p.locks)
	// Of one stripe the exclusive entry sorts first and is the one kept.
	p.locks = slices.CompactFunc(p.locks, func(a, b uint32) bool { return a>>1 == b>>1 })
	return nil
}

func (p *plan) add(seed maphash.Seed, partition string, key []byte, shared uint32) error {
	buf, err := appendKey(p.buf, partition, key)
	if err != nil {
		return err
	}
	start := len(p.buf)
	p.buf = buf
	p.ends = append(p.ends, len(buf))
	p.locks = append(p.locks, uint32(maphash.Bytes(seed, buf[start:])%stripes)<<1|shared)
	return nil
}

func (p *plan) lock(locks *[stripes]sync.RWMutex) {
	for _, l := range p.locks {
		if l&1 == 1 {
			locks[l>>1].RLock()
		} else {
			locks[l>>1].Lock()
		}
	}
}

func (p *plan) unlock(locks *[stripes]sync.RWMutex) {
	for _, l := range p.locks {
		if l&1 == 1 {
			locks[l>>1].RUnlock()
		} else {
			locks[l>>1].Unlock()
		}
	}
}
