package gateway

import "net/http"

func (g *Gateway) kvGet(http.ResponseWriter, *request) error   { return notImplemented("kv-get") }
func (g *Gateway) kvMatch(http.ResponseWriter, *request) error { return notImplemented("kv-match") }
func (g *Gateway) kvPut(http.ResponseWriter, *request) error   { return notImplemented("kv-put") }
func (g *Gateway) kvRegister(http.ResponseWriter, *request) error {
	return notImplemented("kv-register")
}
func (g *Gateway) kvGetObject(http.ResponseWriter, *request) error {
	return notImplemented("x-kv-descriptor")
}
func (g *Gateway) kvObjectRDMA(http.ResponseWriter, *request) error {
	return notImplemented("x-kv-rdma-target")
}
func (g *Gateway) kvObjectToken(w http.ResponseWriter, r *request) error {
	w.Header().Set("X-Amz-Rdma-Reply", "501")
	return notImplemented("x-amz-rdma-token")
}
