package conformance

import "slices"

// unserved are S3 requests outside the scope that the suite knows: each must
// be refused as not implemented, never taken for the plain request.
var unserved = []struct{ method, path, query, header string }{
	{"PUT", "/B", "versioning", ""}, {"GET", "/B", "versions", ""}, {"PUT", "/B", "lifecycle", ""}, {"PUT", "/B", "policy", ""},
	{"PUT", "/B", "cors", ""}, {"PUT", "/B", "encryption", ""}, {"PUT", "/B", "notification", ""}, {"PUT", "/B", "replication", ""},
	{"PUT", "/B", "website", ""}, {"PUT", "/B", "logging", ""}, {"PUT", "/B", "object-lock", ""}, {"PUT", "/B", "accelerate", ""},
	{"PUT", "/B", "requestPayment", ""}, {"GET", "/B", "inventory", ""}, {"GET", "/B", "metrics", ""}, {"GET", "/B", "analytics", ""},
	{"GET", "/B", "intelligent-tiering", ""}, {"DELETE", "/B", "publicAccessBlock", ""}, {"DELETE", "/B", "ownershipControls", ""},
	{"GET", "/B/K", "retention", ""}, {"PUT", "/B/K", "retention", ""}, {"GET", "/B/K", "legal-hold", ""}, {"PUT", "/B/K", "legal-hold", ""},
	{"GET", "/B/K", "torrent", ""}, {"POST", "/B/K", "restore", ""}, {"POST", "/B/K", "select&select-type=2", ""}, {"PUT", "/B/K", "encryption", ""},
	{"PUT", "/B/K", "renameObject", ""},
}

func errorCases() []kase {
	var out []kase
	for _, u := range unserved {
		level := "Bucket"
		if len(u.path) > 2 {
			level = "Object"
		}
		out = append(out, oursOne("error/"+u.method+level+"/"+u.query+"-is-501", func(e *env) {
			b := e.bucket()
			e.put(b, "K", []byte("kept"))
			path := "/" + b
			if level == "Object" {
				path += "/K"
			}
			e.denied(e.do(req{Method: u.method, Path: path, Query: u.query}), 501, "NotImplemented")
			g, err := e.aws.Get(e.ctx, b, "K", getOpts{})
			e.ok(err)
			e.same(g.Body, []byte("kept"))
		})...)
	}
	return slices.Concat(out,
		oursOne("error/PutObject/headers-not-served-are-501", func(e *env) {
			b := e.bucket()
			for name, v := range map[string]string{
				"X-Amz-Server-Side-Encryption":                    "AES256",
				"X-Amz-Server-Side-Encryption-Customer-Algorithm": "AES256",
				"X-Amz-Acl":                       "public-read",
				"X-Amz-Storage-Class":             "GLACIER",
				"X-Amz-Grant-Read":                "id=1",
				"X-Amz-Of-Tomorrow":               "x",
				"X-Amz-Object-Lock-Mode":          "GOVERNANCE",
				"X-Amz-Object-Lock-Legal-Hold":    "ON",
				"X-Amz-Write-Offset-Bytes":        "5",
				"X-Amz-Website-Redirect-Location": "/other",
			} {
				a := e.do(req{Method: "PUT", Path: "/" + b + "/k", Body: []byte("x"), Header: map[string]string{name: v}})
				if a.Status != 501 || a.Code != "NotImplemented" {
					e.Errorf("%s: answered %d %s, want 501 NotImplemented: nothing may be promised that is not done", name, a.Status, a.Code)
				}
			}
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.fails(err, 404, "")
		}),
		oursOne("error/GetObject/versions-are-501", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			for _, m := range []string{"GET", "DELETE"} {
				a := e.do(req{Method: m, Path: "/" + b + "/k", Query: "versionId=3HL4kqtJlcpXroDTDmJ"})
				if a.Status != 501 && a.Status != 400 && a.Status != 404 {
					e.Errorf("%s of a version: answered %d, want an error", m, a.Status)
				}
			}
			_, err := e.aws.Head(e.ctx, b, "k", getOpts{})
			e.ok(err)
		}),
		one("error/MethodNotAllowed/patch", func(e *env) {
			a := e.do(req{Method: "PATCH", Path: "/" + e.bucket() + "/k"})
			if a.Status != 405 && a.Status != 501 {
				e.Errorf("answered %d %s, want 405 or 501", a.Status, a.Code)
			}
		}),
		one("error/GetObject/bad-escape", func(e *env) {
			b := e.bucket()
			e.put(b, "k", []byte("x"))
			a := e.do(req{Method: "GET", Path: "/" + b + "/k", Query: "prefix=%zz", Anon: true})
			if a.Status < 400 || a.Status >= 500 {
				e.Errorf("answered %d, want 4xx", a.Status)
			}
		}),
		one("error/PutObject/bucket-name-is-empty", func(e *env) {
			a := e.do(req{Method: "PUT", Path: "//k", Body: []byte("x")})
			if a.Status < 400 || a.Status >= 500 {
				e.Errorf("answered %d %s, want 4xx", a.Status, a.Code)
			}
		}),
		one("error/GetObject/request-id-differs", func(e *env) {
			b := e.bucket()
			x := e.do(req{Method: "GET", Path: "/" + b + "/nothing"})
			y := e.do(req{Method: "GET", Path: "/" + b + "/nothing"})
			if x.Fields["RequestId"] == y.Fields["RequestId"] || x.Fields["RequestId"] != x.Header.Get("X-Amz-Request-Id") {
				e.Errorf("request ids %q and %q, header %q", x.Fields["RequestId"], y.Fields["RequestId"], x.Header.Get("X-Amz-Request-Id"))
			}
		}),
	)
}
