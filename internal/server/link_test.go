package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/objcached/objcached/bwsched/pace"
	kv "github.com/objcached/objcached/client"
	"github.com/objcached/objcached/descriptor"
	"github.com/objcached/objcached/internal/rate"
)

// TestTwoDeliveriesShareTheLink paces two bodies and a delivery into memory
// under a small cap: the bytes are right, and the link's books say that all of
// them, and no more, were given leave, no faster than the cap.
func TestTwoDeliveriesShareTheLink(t *testing.T) {
	const n, layers, s = 10, 8, 64 << 10 // 5 MiB each
	const cap = rate.Rate(40e6)
	dir := t.TempDir()
	r := start(t, Options{Dir: filepath.Join(dir, "store"), ShmListen: filepath.Join(dir, "shm.sock"), ShmBytes: 64 << 20,
		LinkRate: cap, Policy: "stall-opt", Epoch: 10 * time.Millisecond})
	c := kvClient(t, r.url, rootKey, rootSecret)
	if err := c.S3().MakeBucket(t.Context(), "kvs", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := put(t, c, n, layers*s)
	if got := r.s.cfg.Link.Stats().Bytes; got != 0 {
		t.Errorf("%d bytes of plain PUTs were paced", got)
	}
	buf, err := c.Register(t.Context(), n*layers*s)
	if err != nil {
		t.Fatal(err)
	}
	req := kv.GetRequest{Keys: keys, NumLayers: layers, PerLayerChunkBytes: s, LayerComputeMicros: 1000}
	var want []byte
	for l := range layers {
		for j := range n {
			want = append(want, slice(&req, j, l)...)
		}
	}
	before := time.Now()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			q := req
			q.Delivery = descriptor.Auto
			if i == 1 {
				q.LayerComputeMicros = 0 // outside of the pool
			}
			got, err := body(t, c, q)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("body %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	tr, err := c.GetLayersInto(t.Context(), req, buf, descriptor.Target{})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := tr.Wait(t.Context())
	if err != nil || !bytes.Equal(buf.Bytes(), want) {
		t.Errorf("memory: %+v %v", sum, err)
	}
	wg.Wait()
	took := time.Since(before)
	st := r.s.cfg.Link.Stats()
	if st.Bytes != int64(3*len(want)) || st.Waiting != 0 || st.Pool != 0 || st.Outside != 0 || st.Waited == 0 || st.Plans < 2 {
		t.Errorf("the link counts %+v, three payloads are %d bytes", st, 3*len(want))
	}
	// However slow the machine is, it cannot have been faster.
	if most := float64(cap)*(took.Seconds()+0.01) + 3*pace.MaxQuantum; float64(st.Bytes) > most {
		t.Errorf("%d bytes in %v, at most %.0f", st.Bytes, took, most)
	}
	if sum.GrantedRate <= 0 || sum.GrantedRate > float64(cap) {
		t.Errorf("granted %g", sum.GrantedRate)
	}
	page := r.get(t, "/metrics")
	for _, m := range []string{
		`objcached_link_capacity_bytes_per_second{policy="stall-opt"} 4e+07`,
		`objcached_link_granted_bytes_per_second{policy="stall-opt"} `,
		`objcached_link_flows{policy="stall-opt",share="pool"} 0`, `objcached_link_flows{policy="stall-opt",share="fair"} 0`,
		fmt.Sprintf(`objcached_link_bytes_total{policy="stall-opt"} %g`, float64(st.Bytes)),
		`objcached_link_waiting{policy="stall-opt"} 0`, `objcached_link_wait_seconds_total{policy="stall-opt"} `,
		`objcached_link_plans_total{policy="stall-opt"} `, `objcached_link_refused_total{policy="stall-opt"} 0`,
	} {
		if !strings.Contains(page, m) {
			t.Errorf("no %s", m)
		}
	}
}

// body is the payload of a layerwise GET as its layers come.
func body(t *testing.T, c *kv.Client, q kv.GetRequest) ([]byte, error) {
	g, err := c.GetLayers(t.Context(), q)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var all []byte
	for l, err := range g.All() {
		if err != nil {
			return all, err
		}
		all = append(all, l.Data...)
	}
	return all, nil
}

// TestTenantsOfTheLink: limits come from the credentials file, count for whose
// request it is, and answer 503 with a time to come back.
func TestTenantsOfTheLink(t *testing.T) {
	dir := t.TempDir()
	creds := filepath.Join(dir, "users.yaml")
	write := func(tenants string) {
		t.Helper()
		if err := os.WriteFile(creds, []byte(`users:
  - {name: other, tenant: few, access_key: OTHERKEY, secret_key: "the secret of other", buckets: ["*"]}
tenants:
`+tenants), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("  - {name: few, max_rate: 1kB/s}\n") // one delivery at a time, of minutes
	logged := new(logBuffer)
	o := Options{Dir: filepath.Join(dir, "store"), Credentials: creds, LinkRate: 1e9, Policy: "ttft-opt",
		Logger: slog.New(slog.NewTextHandler(logged, nil)), ShutdownTimeout: time.Millisecond}
	r := start(t, o)
	c := kvClient(t, r.url, rootKey, rootSecret)
	if err := c.S3().MakeBucket(t.Context(), "kvs", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := put(t, c, 2, 2<<20)
	get := fmt.Sprintf(`{"chunk_keys":[%q,%q],"num_layers":2,"per_layer_chunk_bytes":1048576,"layer_compute_us":1000}`, keys[0], keys[1])
	ended := make(chan error, 1)
	go func() {
		_, err := body(t, kvClient(t, r.url, "OTHERKEY", "the secret of other"), kv.GetRequest{Keys: keys, NumLayers: 2, PerLayerChunkBytes: 1 << 20})
		ended <- err
	}()
	for r.s.cfg.Link.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	status, text, h := ask(t, r.url, "OTHERKEY", "the secret of other", "/kvs?kv-get=", get, true)
	if refused(t, "a tenant at its ceiling", status, text, 503, "<Code>SlowDown</Code>"); h.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	status, text, h = ask(t, r.url, rootKey, rootSecret, "/kvs?kv-get=", get, true)
	if status != 200 || len(text) != 4<<20 || !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(h.Get("X-Kv-Granted-Rate")) {
		t.Errorf("beside it: %d, %d bytes, granted %q", status, len(text), h.Get("X-Kv-Granted-Rate"))
	}
	r.end(t)
	if err := <-ended; err == nil {
		t.Error("a delivery of minutes is whole")
	}
	if s := logged.String(); strings.Contains(s, "the secret of") || !strings.Contains(s, "rate=1GB/s policy=ttft-opt") {
		t.Errorf("log: %s", s)
	}

	write("  - {name: few, min_rate: 2GB/s}\n")
	if _, err := Open(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), `tenant "few"`) {
		t.Errorf("more is promised than there is: %v", err)
	}
	o.Policy = "fifo"
	if _, err := Open(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "fifo") {
		t.Errorf("an unknown policy: %v", err)
	}
}
