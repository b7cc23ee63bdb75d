package descriptor

import (
	"encoding/base64"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// goodTarget holds two chunks of two layers of 8 bytes, and more.
const goodTarget = `{"handle":"h","offset":100,"length":1000,"tag":1}`

// targetBase is a descriptor of two chunks of two layers of 8 bytes.
const targetBase = `{"chunk_keys":["a","b"],"num_layers":2,"per_layer_chunk_bytes":8,"rdma_target":`

func TestParseTarget(t *testing.T) {
	for doc, want := range map[string]Target{
		goodTarget: {Handle: "h", Offset: 100, Length: 1000, Tag: 1, ChunkStride: 8},
		`{"handle":"h","offset":0,"length":32,"tag":0}`:                                                                                         {Handle: "h", Length: 32, ChunkStride: 8},
		`{"handle":"h","offset":0,"length":32,"tag":0,"layer_stride":8,"chunk_stride":16}`:                                                      {Handle: "h", Length: 32, LayerStride: 8, ChunkStride: 16},
		`{"handle":"h","offset":0,"length":64,"tag":0,"layer_bases":[0,32],"plane_stride":16,"slots":[1,0]}`:                                    {Handle: "h", Length: 64, LayerBases: []int64{0, 32}, Planes: 2, PlaneStride: 16, BlocksPerChunk: 1, BlockStride: 4, Slots: []int64{1, 0}},
		`{"handle":"h","offset":0,"length":99,"tag":0,"layer_bases":[0,40],"planes":1,"blocks_per_chunk":2,"block_stride":5,"slots":[3,0,7,1]}`: {Handle: "h", Length: 99, LayerBases: []int64{0, 40}, Planes: 1, BlocksPerChunk: 2, BlockStride: 5, Slots: []int64{3, 0, 7, 1}},
		// K and V of both layers side by side in one block.
		`{"handle":"h","offset":0,"length":64,"tag":0,"layer_bases":[0,8],"plane_stride":4,"block_stride":16,"slots":[3,1]}`: {Handle: "h", Length: 64, LayerBases: []int64{0, 8}, Planes: 2, PlaneStride: 4, BlocksPerChunk: 1, BlockStride: 16, Slots: []int64{3, 1}},
	} {
		for enc, body := range both(t, targetBase+doc+"}") {
			d, err := Parse(enc, body, Limits{})
			if err != nil || !reflect.DeepEqual(*d.Target, want) {
				t.Errorf("%s:\n got %+v, %v\nwant %+v", doc, d, err, want)
				continue
			}
			again, err := Marshal(enc, d)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := Parse(enc, again, Limits{}); err != nil || !reflect.DeepEqual(d, e) {
				t.Errorf("%s read again: %+v, %v", again, e, err)
			}
		}
	}
}

func TestBadTargets(t *testing.T) {
	const head = `{"handle":"h","offset":0,"length":64,"tag":0`
	const paged = head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[1,0]`
	const max = "9223372036854775807"
	for _, c := range []struct{ target, field, reason string }{
		{`{"offset":0,"length":1,"tag":0}`, "handle", "missing"}, {`{"handle":"h","length":1,"tag":0}`, "offset", "missing"},
		{`{"handle":"h","offset":0,"tag":0}`, "length", "missing"}, {`{"handle":"h","offset":0,"length":1}`, "tag", "missing"},
		{`{}`, "handle", "missing"}, {head + `,"colour":1}`, "colour", "unknown"}, {head + `,"tag":1}`, "tag", "twice"},
		{head + `,"Slots":[]}`, "Slots", "unknown"},
		{`{"handle":"","offset":0,"length":1,"tag":0}`, "handle", "1 to"},
		{`{"handle":"` + strings.Repeat("h", 129) + `","offset":0,"length":1,"tag":0}`, "handle", "1 to"},
		{`{"handle":1,"offset":0,"length":1,"tag":0}`, "handle", "text"},
		{`{"handle":"h","offset":-1,"length":1,"tag":0}`, "offset", "negative"},
		{`{"handle":"h","offset":0,"length":0,"tag":0}`, "length", "positive"},
		{`{"handle":"h","offset":1,"length":` + max + `,"tag":0}`, "length", "overflows"},
		{`{"handle":"h","offset":0,"length":1,"tag":-1}`, "tag", "negative"}, {`{"handle":"h","offset":0,"length":1,"tag":"1"}`, "tag", "number"},

		{`{"handle":"h","offset":0,"length":31,"tag":0}`, "length", "do not hold the 32"},
		{head + `,"layer_stride":0}`, "layer_stride", "positive"}, {head + `,"chunk_stride":-8}`, "chunk_stride", "positive"},
		{head + `,"chunk_stride":7}`, "chunk_stride", "overlap"}, {head + `,"layer_stride":15}`, "layer_stride", "overlap"},
		{head + `,"chunk_stride":9}`, "chunk_stride", "layers overlap"},
		{head + `,"layer_stride":7,"chunk_stride":16}`, "layer_stride", "overlap"},
		{head + `,"layer_stride":8,"chunk_stride":15}`, "layer_stride", "overlap"},
		{head + `,"layer_stride":` + max + `}`, "layer_stride", "overflows"}, {head + `,"chunk_stride":` + max + `}`, "layer_stride", "overflows"},
		{head + `,"layer_stride":49}`, "length", "do not hold the 65"},
		{head + `,"planes":1}`, "planes", "layer_bases"}, {head + `,"plane_stride":1}`, "plane_stride", "layer_bases"},
		{head + `,"blocks_per_chunk":1}`, "blocks_per_chunk", "layer_bases"}, {head + `,"block_stride":1}`, "block_stride", "layer_bases"},
		{head + `,"slots":[]}`, "slots", "layer_bases"},

		{paged + `,"layer_stride":8}`, "layer_stride", "go with"}, {paged + `,"chunk_stride":8}`, "chunk_stride", "go with"},
		{head + `,"layer_bases":[0],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "1 entries"},
		{head + `,"layer_bases":[],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "0 entries"},
		{head + `,"layer_bases":[0,-1],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "negative"},
		{head + `,"layer_bases":[0,1.5],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "integer"},
		{head + `,"layer_bases":{},"plane_stride":16,"slots":[1,0]}`, "layer_bases", "array"},
		{head + `,"layer_bases":[0,32],"slots":[1,0]}`, "plane_stride", "positive"},
		{paged + `,"planes":3}`, "planes", "1 or 2"}, {paged + `,"planes":0}`, "planes", "positive"},
		{paged + `,"blocks_per_chunk":3}`, "blocks_per_chunk", "divide"}, {paged + `,"blocks_per_chunk":2}`, "slots", "2 for each"},
		{paged + `,"block_stride":3}`, "block_stride", "overlap"},
		{head + `,"layer_bases":[0,32],"plane_stride":16}`, "slots", "0 entries"},
		{head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[1]}`, "slots", "1 entries"},
		{head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[1,1]}`, "slots", "twice"},
		{head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[1,-1]}`, "slots", "negative"},
		{head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[4,12]}`, "slots", "past"},
		{head + `,"layer_bases":[0,61],"plane_stride":16,"slots":[0,1]}`, "layer_bases", "past"},
		{head + `,"layer_bases":[0,32],"plane_stride":16,"slots":[0,` + max + `]}`, "slots", "overflows"},
		{head + `,"layer_bases":[0,` + max + `],"plane_stride":16,"slots":[0,1]}`, "slots", "overflows"},
		{head + `,"layer_bases":[0,32],"plane_stride":4,"slots":[1,0]}`, "layer_bases", "overlap"},
		{head + `,"layer_bases":[0,4],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "overlap"},
		{head + `,"layer_bases":[0,0],"plane_stride":16,"slots":[1,0]}`, "layer_bases", "overlap"},
		{`{"handle":"h","offset":8,"length":64,"tag":0,"layer_bases":[8,7],"plane_stride":16,"slots":[0,1]}`, "layer_bases", "before"},
	} {
		for enc, body := range both(t, targetBase+c.target+"}") {
			wantField(t, enc, body, Limits{}, targetPrefix+c.field, c.reason)
		}
	}
	lim := Limits{Layers: 2}
	wantField(t, JSON, []byte(targetBase+head+`,"layer_bases":[0,1,2]}}`), lim, targetPrefix+"layer_bases", "limit of 2")
}

// addresses lists where a target puts every byte, from the definition alone.
func listAddresses(d *Descriptor) []int64 {
	var out []int64
	t, s := d.Target, d.PerLayerChunkBytes
	for l := d.FirstLayer; l < d.FirstLayer+d.LayerCount; l++ {
		for j := range d.ChunkKeys {
			for k := range s {
				if !t.Paged() {
					ls := t.LayerStride
					if ls == 0 {
						ls = int64(len(d.ChunkKeys)) * s
					}
					out = append(out, t.Offset+int64(l-d.FirstLayer)*ls+int64(j)*t.ChunkStride+k)
					continue
				}
				plane := s / int64(t.Planes)
				block := plane / int64(t.BlocksPerChunk)
				b := k % plane / block
				out = append(out, t.LayerBases[l]+k/plane*t.PlaneStride+t.Slots[int64(j*t.BlocksPerChunk)+b]*t.BlockStride+k%block)
			}
		}
	}
	return out
}

// TestTargetsAgainstEveryByte: what is accepted puts every byte in the window
// and none on another; simple placements that do so are accepted.
func TestTargetsAgainstEveryByte(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	taken, simple := 0, 0
	for range 60_000 {
		d := &Descriptor{ChunkKeys: []string{"a", "b", "c"}[:1+r.IntN(3)], NumLayers: 1 + r.IntN(3), PerLayerChunkBytes: 1 + r.Int64N(8)}
		d.FirstLayer = r.IntN(d.NumLayers)
		tg := &Target{Handle: "h", Offset: r.Int64N(5), Length: 1 + r.Int64N(120)}
		d.Target = tg
		if r.IntN(2) == 0 {
			tg.LayerStride, tg.ChunkStride = r.Int64N(30), r.Int64N(30)
		} else {
			for range d.NumLayers {
				tg.LayerBases = append(tg.LayerBases, r.Int64N(60))
			}
			tg.Planes, tg.BlocksPerChunk, tg.PlaneStride = 1+r.IntN(2), 1+r.IntN(2), 1+r.Int64N(30)
			tg.BlockStride = r.Int64N(20)
			for range len(d.ChunkKeys) * tg.BlocksPerChunk {
				tg.Slots = append(tg.Slots, r.Int64N(6))
			}
		}
		err := d.Validate()
		if err != nil && tg.Paged() {
			continue
		}
		if tg.ChunkStride == 0 {
			tg.ChunkStride = d.PerLayerChunkBytes
		}
		good := true
		seen := map[int64]bool{}
		for _, a := range listAddresses(d) {
			if a < tg.Offset || a >= tg.Offset+tg.Length || seen[a] {
				good = false
				break
			}
			seen[a] = true
		}
		switch {
		case err == nil && !good:
			t.Fatalf("accepted %+v %+v", d, tg)
		case err != nil && good && !interleaved(d):
			t.Fatalf("refused %+v %+v: %v", d, tg, err)
		case err == nil && tg.Paged():
			taken++
		case err == nil:
			simple++
		}
	}
	if taken < 200 || simple < 200 {
		t.Errorf("only %d paged and %d simple placements were accepted", taken, simple)
	}
}

// interleaved reports a simple placement whose slices share no byte and which
// is neither layer by layer nor chunk by chunk: those are not served.
func interleaved(d *Descriptor) bool {
	s, n, c := d.PerLayerChunkBytes, int64(len(d.ChunkKeys)), int64(d.LayerCount)
	ls, cs := d.Target.LayerStride, d.Target.ChunkStride
	if ls == 0 {
		ls = n * s
	}
	return n > 1 && c > 1 && (cs < s || ls < (n-1)*cs+s) && (ls < s || cs < (c-1)*ls+s) || n > 1 && cs < s
}

func TestParseRegister(t *testing.T) {
	for doc, want := range map[string]Register{
		`{"provider":"shm","length":4096}`:                                                                   {Provider: "shm", Length: 4096},
		`{"provider":"tcp;ofi_rxm","length":1,"address":"AQI=","key":"Aw==","base":5}`:                       {Provider: "tcp;ofi_rxm", Length: 1, Address: []byte{1, 2}, Key: []byte{3}, Base: 5},
		`{"provider":"x","length":9223372036854775807,"address":"` + b64(256) + `","key":"` + b64(64) + `"}`: {Provider: "x", Length: math.MaxInt64, Address: make([]byte, 256), Key: make([]byte, 64)},
		`{"providers":true}`: {Providers: true}, `{"withdraw":true,"handle":"secret"}`: {Handle: "secret", Withdraw: true},
		`{"id":"i","nonce":"_-8"}`: {ID: "i", Nonce: []byte{0xff, 0xef}},
		`{"handle":"secret"}`:      {Handle: "secret"},
	} {
		for enc, body := range both(t, doc) {
			q, err := ParseRegister(enc, body, Limits{})
			if err != nil || !reflect.DeepEqual(*q, want) {
				t.Errorf("%s: %+v, %v", doc, q, err)
				continue
			}
			if s := q.String(); strings.Contains(s, "secret") || strings.Contains(s, "_-8") || strings.Contains(s, "Aw") {
				t.Errorf("%s shows %q", doc, s)
			}
			b, err := MarshalRegister(q)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := ParseRegister(JSON, b, Limits{}); err != nil || !reflect.DeepEqual(e, q) {
				t.Errorf("%s read again: %+v, %v", b, e, err)
			}
		}
	}
	for _, c := range []struct{ doc, field string }{
		{`{}`, "provider"}, {`{"length":1}`, "provider"}, {`{"provider":"shm"}`, "length"}, {`{"provider":"shm","length":0}`, "length"},
		{`{"provider":"shm","length":1,"address":"AQ=="}`, "address"}, {`{"provider":"shm","length":1,"key":"AQ=="}`, "key"},
		{`{"provider":"shm","length":1,"base":1}`, "base"}, {`{"provider":"","length":1}`, "provider"}, {`{"provider":7}`, "provider"},
		{`{"provider":"x","length":1,"address":"AQ"}`, "address"}, {`{"provider":"x","length":1,"key":7}`, "key"},
		{`{"id":"i"}`, "nonce"}, {`{"nonce":"AA"}`, "id"}, {`{"id":"i","nonce":"AA","length":1}`, "id"}, {`{"id":"i","nonce":"A"}`, "nonce"},
		{`{"id":"i","nonce":"A\nA"}`, "nonce"}, {`{"handle":"h","id":"i"}`, "handle"}, {`{"handle":"h","provider":"shm"}`, "handle"},
		{`{"provider":"x","length":1}`, "address"}, {`{"provider":"x","length":1,"address":"AQ=="}`, "key"}, {`{"provider":"x","address":"AQ==","key":"AQ=="}`, "length"},
		{`{"provider":"x","length":1,"address":"","key":"AQ=="}`, "address"}, {`{"provider":"x","length":1,"address":"AQ==","key":""}`, "key"},
		{`{"provider":"x","length":1,"address":"` + b64(257) + `","key":"AQ=="}`, "address"}, {`{"provider":"x","length":1,"address":"AQ==","key":"` + b64(65) + `"}`, "key"},
		{`{"provider":"x","length":1,"address":"AQ==","key":"AQ==","base":-1}`, "base"}, {`{"provider":"x","length":1,"address":"AQ==","key":"AQ==","base":9223372036854775807}`, "length"},
		{`{"providers":false}`, "providers"}, {`{"providers":1}`, "providers"}, {`{"providers":null}`, "providers"}, {`{"providers":true,"handle":"h"}`, "providers"},
		{`{"providers":true,"length":1}`, "providers"}, {`{"providers":true,"withdraw":true}`, "providers"}, {`{"withdraw":true}`, "handle"},
		{`{"withdraw":false,"handle":"h"}`, "withdraw"}, {`{"withdraw":true,"handle":"h","id":"i"}`, "handle"}, {`{"withdraw":true,"provider":"shm","length":1}`, "handle"},
		{`{"id":"i","nonce":"` + strings.Repeat("A", 1000) + `"}`, "nonce"},
		{`{"handle":"h","handle":"h"}`, "handle"}, {`{"colour":1}`, "colour"}, {`[]`, "body"}, {`{`, "body"},
	} {
		_, err := ParseRegister(JSON, []byte(c.doc), Limits{})
		if fe, ok := err.(*FieldError); !ok || fe.Field != c.field {
			t.Errorf("%s: %v, want field %q", c.doc, err, c.field)
		}
		moved, ok := transcode(JSON, []byte(c.doc), CBOR)
		if !ok {
			continue
		}
		_, err = ParseRegister(CBOR, moved, Limits{})
		if fe, ok := err.(*FieldError); !ok || fe.Field != c.field {
			t.Errorf("%s in CBOR: %v, want field %q", c.doc, err, c.field)
		}
	}
	if _, err := MarshalRegister(&Register{Provider: "verbs"}); err == nil {
		t.Error("a registration that nothing could read was written")
	}
}

// b64 is n zero bytes.
func b64(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }

func FuzzParseRegister(f *testing.F) {
	for _, doc := range []string{`{"provider":"shm","length":4096}`, `{"id":"i","nonce":"_-8"}`, `{"handle":"h"}`,
		`{"provider":"x","length":1,"address":"AQI=","key":"Aw==","base":5}`, `{"providers":true}`, `{"handle":"h","withdraw":true}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		q, err := ParseRegister(JSON, doc, fuzzLimits)
		if err != nil {
			if _, ok := err.(*FieldError); !ok {
				t.Fatalf("%T is no *FieldError: %v", err, err)
			}
			return
		}
		moved, ok := transcode(JSON, doc, CBOR)
		if !ok {
			t.Fatal("accepted a malformed document")
		}
		if e, err := ParseRegister(CBOR, moved, fuzzLimits); err != nil || !reflect.DeepEqual(q, e) {
			t.Fatalf("%+v in JSON; %+v, %v in CBOR", q, e, err)
		}
		if b, err := MarshalRegister(q); err == nil {
			if e, err := ParseRegister(JSON, b, fuzzLimits); err != nil || !reflect.DeepEqual(q, e) {
				t.Fatalf("%s read again: %+v, %v", b, e, err)
			}
		}
	})
}
