package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/objcached/objcached/transport/shm"
)

// logBuffer keeps what a server logs.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func hexSHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// register registers memory by hand and returns its handle.
func (w way) register(t *testing.T, r *running, access, secret string, n int64) (string, handMemory) {
	t.Helper()
	m := w.memory(t, n)
	send := func(body string) string {
		t.Helper()
		status, answer, _ := ask(t, r.url, access, secret, "/?kv-register=", body, true)
		if status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		return answer
	}
	var a struct{ ID, Handle string }
	named := send(m.name())
	if err := json.Unmarshal([]byte(named), &a); err != nil {
		t.Fatal(err)
	}
	m.attach(t, named)
	if err := json.Unmarshal([]byte(send(fmt.Sprintf(`{"id":%q,"nonce":%q}`, a.ID, base64.RawURLEncoding.EncodeToString(m.Nonce())))), &a); err != nil {
		t.Fatal(err)
	}
	clear(m.Bytes())
	return a.Handle, m
}

// handShm is shared memory by hand.
type handShm struct{ *shm.Memory }

func newHandShm(t *testing.T, n int64) handMemory {
	t.Helper()
	m, err := shm.NewMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(10 * time.Second); err != nil {
			t.Error(err)
		}
	})
	return handShm{m}
}

func (m handShm) name() string { return fmt.Sprintf(`{"provider":"shm","length":%d}`, len(m.Bytes())) }

func (m handShm) secrets() []string { return nil }

func (m handShm) attach(t *testing.T, answer string) {
	t.Helper()
	var a struct{ ID, Socket string }
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		t.Fatal(err)
	}
	if err := m.Offer(t.Context(), a.Socket, a.ID); err != nil {
		t.Fatal(err)
	}
}
