package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/minio/minio-go/v7"

	kv "github.com/objcached/objcached/client"
)

// way is a way into clients' memory that tests go.
type way struct {
	name    string
	options func(o *Options, dir string) // of a server that has this one
	// memory is a client's, by hand: named to a server, and attached when attach
	// returns, with an answer that has an id.
	memory  func(t *testing.T, n int64) handMemory
	notices bool // a client notices the server's end by itself
	// left says what the transport itself still holds besides clients; nil: nothing.
	left func(m *memory) string
}

// handMemory is a client's memory without the client.
type handMemory interface {
	Bytes() []byte
	Nonce() []byte
	name() string // the request
	secrets() []string
	attach(t *testing.T, answer string)
}

// ways has every way of this build.
var ways = []way{shmWay}

var shmWay = way{"shm", func(o *Options, dir string) { o.ShmListen = filepath.Join(dir, "shm.sock") }, newHandShm, true, func(*memory) string { return "" }}

// everyWay runs a test on each.
func everyWay(t *testing.T, f func(t *testing.T, w way)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// startShm is start of shared memory.
func startShm(t *testing.T, n int, size int64) (*running, *kv.Client, []string) {
	t.Helper()
	return shmWay.start(t, n, size)
}

// start is a server with this way in, a bucket and n chunks of size bytes.
func (w way) start(t *testing.T, n int, size int64) (*running, *kv.Client, []string) {
	t.Helper()
	dir := t.TempDir()
	creds := filepath.Join(dir, "users.yaml")
	if err := os.WriteFile(creds, []byte(`users:
  - {name: other, tenant: other, access_key: OTHERKEY, secret_key: "the secret of other", buckets: ["*"]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	logged := new(logBuffer)
	o := Options{Dir: filepath.Join(dir, "store"), Credentials: creds, ShmBytes: 64 << 20, MaxRequests: 64,
		Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	w.options(&o, dir)
	r := start(t, o)
	r.log = logged
	c := kvClient(t, r.url, rootKey, rootSecret)
	if err := c.S3().MakeBucket(t.Context(), "kvs", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return r, c, put(t, c, n, size)
}
