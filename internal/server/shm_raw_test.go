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

// rawRegister registers memory by hand and returns its handle.
func rawRegister(t *testing.T, r *running, access, secret string, n int64) (string, *shm.Memory) {
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
	var a struct{ ID, Socket, Handle string }
	send := func(body string) {
		t.Helper()
		status, answer, _ := ask(t, r.url, access, secret, "/?kv-register=", body, true)
		if status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			t.Fatal(err)
		}
	}
	send(fmt.Sprintf(`{"provider":"shm","length":%d}`, n))
	if err := m.Offer(t.Context(), a.Socket, a.ID); err != nil {
		t.Fatal(err)
	}
	send(fmt.Sprintf(`{"id":%q,"nonce":%q}`, a.ID, base64.RawURLEncoding.EncodeToString(m.Nonce())))
	clear(m.Bytes())
	return a.Handle, m
}
