package registry

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestTags: each works once, a slot's tags rise, and a refused one is not used up.
func TestTags(t *testing.T) {
	g := newRegistry(t, Config{})
	handle, _, _ := register(t, g, alice, page)
	open := func(w Window) (*Grant, error) {
		w.Handle = handle
		_, grant, err := g.Open(t.Context(), alice, w)
		return grant, err
	}
	at := func(tag int64) Window { return Window{Length: page, Tag: tag, Layers: 1} }
	use := func(tag int64) {
		t.Helper()
		grant, err := open(at(tag))
		if err != nil {
			t.Fatalf("tag %d: %v", tag, err)
		}
		if grant.Slot != int(tag%16) || int64(grant.Generation) != tag/16+1 || grant.Length != page {
			t.Errorf("tag %d: %+v", tag, grant)
		}
		grant.Close()
	}
	for _, w := range []Window{{Offset: -1, Length: 1}, {Length: 0}, {Length: -1}, {Offset: page, Length: 1}, {Offset: 1, Length: 1<<63 - 1},
		{Length: page + 1}} {
		w.Layers = 1
		if _, err := open(w); !errors.Is(err, ErrWindow) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for _, l := range []int{0, -1, MaxLayers + 1} {
		if _, err := open(Window{Length: 1, Layers: l}); !errors.Is(err, ErrLayers) {
			t.Errorf("%d layers: %v", l, err)
		}
	}
	use(0)
	use(3)
	use(Slots)
	use(5 * Slots)
	for _, tag := range []int64{0, Slots, 2 * Slots, 5 * Slots, 3, -1, -Slots, MaxTag + 1, 1<<63 - 1} {
		if _, err := open(at(tag)); !errors.Is(err, ErrTag) {
			t.Errorf("tag %d: %v", tag, err)
		}
	}
	grant, err := open(at(3 + Slots))
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := open(at(3 + 2*Slots)); !errors.As(err, &busy) {
		t.Errorf("a slot in use: %v", err)
	}
	grant.Close()
	use(3 + 2*Slots) // the refused one
	use(MaxTag)
}

func TestLimits(t *testing.T) {
	bob := Owner{"other", "BOB"}
	var c clock
	g := newRegistry(t, Config{Bytes: 8 * page, TenantBytes: 4 * page, Registrations: 5, TenantRegistrations: 3, Pending: 3, TenantPending: 2,
		Transfers: 3, TenantTransfers: 2, Now: c.now})
	var busy *BusyError
	// The provider is another each time: the limits are for all of them.
	providers := 0
	reserve := func(who Owner, n int64, ok bool) {
		t.Helper()
		providers++
		_, _, err := g.Reserve(who, fmt.Sprint(providers), n)
		if ok && err != nil || !ok && !errors.As(err, &busy) {
			t.Errorf("%d bytes of %v: %v", n, who, err)
		}
	}
	for _, n := range []int64{0, -page, 5 * page, 1 << 62} {
		if _, _, err := g.Reserve(alice, "ram", n); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	reserve(alice, page, true)
	reserve(alice, 4*page, false) // bytes of the tenant
	reserve(alice, page, true)
	reserve(alice, page, false) // pending of the tenant
	reserve(bob, page, true)
	reserve(bob, page, false) // pending of all
	c.add(time.Minute)
	g.Expire()
	reserve(alice, 4*page, true)
	reserve(bob, 3*page, true)
	reserve(Owner{"third", "C"}, 2*page, false) // bytes of all
	c.add(time.Minute)
	g.Expire()
	handle, _, _ := register(t, g, alice, page)
	handle2, _, _ := register(t, g, bob, page)
	var open []*Grant
	try := func(who Owner, handle string, tag int64, ok bool) {
		t.Helper()
		_, grant, err := g.Open(t.Context(), who, Window{Handle: handle, Length: 1, Tag: tag, Layers: 1})
		if ok && err != nil || !ok && !errors.As(err, &busy) {
			t.Errorf("transfer %d of %v: %v", tag, who, err)
		}
		if grant != nil {
			open = append(open, grant)
		}
	}
	try(alice, handle, 0, true)
	try(alice, handle, 1, true)
	try(alice, handle, 2, false) // of the tenant
	try(bob, handle2, 0, true)
	try(bob, handle2, 1, false) // of all
	for _, grant := range open {
		grant.Close()
	}
	for range 2 {
		register(t, g, alice, page)
	}
	reserve(alice, page, false) // registrations of the tenant
	register(t, g, bob, page)
	reserve(bob, page, false) // registrations of all
}
