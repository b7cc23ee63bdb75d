//go:build fabric && cgo

#define _GNU_SOURCE
#include "shim.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

const int fab_eagain = -FI_EAGAIN;

struct fab_ep {
	struct fab *f;
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_cq *cq;
	fi_addr_t peer;
	int fd; // to wait on; -1: none
	int again; // in this step it takes no more writes
	struct fi_context2 ctx[FAB_OPS];
};

const char *fab_strerror(int err) { return fi_strerror(err < 0 ? -err : err); }

static void copy_name(char *to, size_t n, const char *from) { snprintf(to, n, "%s", from ? from : ""); }

static int getinfo(struct fab *f, const char *provider, const char *node, uint64_t order, uint64_t delivery)
{
	struct fi_info *h = fi_allocinfo();
	if (!h)
		return -FI_ENOMEM;
	h->caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE | FI_READ | FI_REMOTE_READ;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	h->domain_attr->cq_data_size = 4;
	h->domain_attr->threading = FI_THREAD_DOMAIN;
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	h->tx_attr->op_flags = FI_COMPLETION | delivery;
	h->tx_attr->msg_order = h->rx_attr->msg_order = order;
	h->fabric_attr->prov_name = strdup(provider);
	int rc = fi_getinfo(FI_VERSION(1, 15), node, NULL, node ? FI_SOURCE : 0, h, &f->info);
	fi_freeinfo(h);
	return rc;
}

int fab_open(struct fab *f, const char *provider, const char *node)
{
	memset(f, 0, sizeof *f);
	// An endpoint here has one peer; the default is 256, for which a small
	// device has no room and every endpoint would take memory.
	setenv("FI_UNIVERSE_SIZE", "8", 0);
	f->what = "fi_getinfo";
	int rc = -FI_ENODATA;
	for (int i = 0; i < 4 && rc == -FI_ENODATA; i++)
		rc = getinfo(f, provider, node, i < 2 ? FI_ORDER_RMA_WAW : 0, i % 2 ? 0 : FI_DELIVERY_COMPLETE);
	if (rc)
		return rc;
	struct fi_info *i = f->info;
	uint64_t mode = i->domain_attr->mr_mode;
	f->ordered = (i->tx_attr->msg_order & FI_ORDER_RMA_WAW) && (i->rx_attr->msg_order & FI_ORDER_RMA_WAW);
	f->order_size = i->ep_attr->max_order_waw_size;
	f->delivery = !!(i->tx_attr->op_flags & FI_DELIVERY_COMPLETE);
	f->virt_addr = !!(mode & FI_MR_VIRT_ADDR);
	f->prov_key = !!(mode & FI_MR_PROV_KEY);
	f->mr_endpoint = !!(mode & FI_MR_ENDPOINT);
	f->key_size = i->domain_attr->mr_key_size;
	f->max_write = i->ep_attr->max_msg_size;
	copy_name(f->provider, sizeof f->provider, i->fabric_attr->prov_name);
	copy_name(f->domain_name, sizeof f->domain_name, i->domain_attr->name);
	f->what = "fi_fabric";
	if ((rc = fi_fabric(i->fabric_attr, &f->fabric, NULL)))
		goto fail;
	f->what = "fi_domain";
	if ((rc = fi_domain(f->fabric, i, &f->domain, NULL)))
		goto fail;
	f->what = "";
	return 0;
fail:
	fab_close(f);
	return rc;
}

void fab_close(struct fab *f)
{
	if (f->domain)
		fi_close(&f->domain->fid);
	if (f->fabric)
		fi_close(&f->fabric->fid);
	if (f->info)
		fi_freeinfo(f->info);
	f->domain = NULL;
	f->fabric = NULL;
	f->info = NULL;
}

static int open_cq(struct fab *f, struct fab_ep *e)
{
	struct fi_cq_attr a = {.format = FI_CQ_FORMAT_DATA, .size = 1024, .wait_obj = FI_WAIT_FD};
	if (!fi_cq_open(f->domain, &a, &e->cq, NULL)) {
		if (!fi_control(&e->cq->fid, FI_GETWAIT, &e->fd))
			return 0;
		fi_close(&e->cq->fid);
		e->cq = NULL;
	}
	// A wait object of the provider's choice may be one that spins: look at
	// the queue now and then instead.
	e->fd = -1;
	a.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(f->domain, &a, &e->cq, NULL);
}

int fab_ep_open(struct fab *f, struct fab_ep **out)
{
	struct fab_ep *e = calloc(1, sizeof *e);
	int rc;
	if (!e)
		return -FI_ENOMEM;
	e->f = f;
	e->fd = -1;
	e->peer = FI_ADDR_UNSPEC;
	f->what = "fi_cq_open";
	if ((rc = open_cq(f, e)))
		goto fail;
	struct fi_av_attr aa = {.type = FI_AV_TABLE, .count = 1};
	f->what = "fi_av_open";
	if ((rc = fi_av_open(f->domain, &aa, &e->av, NULL))) {
		aa.type = FI_AV_MAP;
		if ((rc = fi_av_open(f->domain, &aa, &e->av, NULL)))
			goto fail;
	}
	f->what = "fi_endpoint";
	if ((rc = fi_endpoint(f->domain, f->info, &e->ep, NULL)))
		goto fail;
	f->what = "fi_ep_bind";
	if ((rc = fi_ep_bind(e->ep, &e->av->fid, 0)) || (rc = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV)))
		goto fail;
	f->what = "fi_enable";
	if ((rc = fi_enable(e->ep)))
		goto fail;
	f->what = "";
	*out = e;
	return 0;
fail:
	fab_ep_close(e);
	return rc;
}

void fab_ep_close(struct fab_ep *e)
{
	// What has arrived is taken first: ofi_rxm over verbs posts a message's buffer
	// again when it finds the message while it closes, and crashes, because the
	// connection is gone by then.
	struct fi_cq_data_entry done[16];
	struct fi_cq_err_entry err = { 0 };
	if (e->ep && e->cq) {
		for (int i = 0; i < 256; i++) {
			ssize_t n = fi_cq_read(e->cq, done, 16);
			if (n == -FI_EAVAIL)
				n = fi_cq_readerr(e->cq, &err, 0);
			if (n <= 0)
				break;
		}
	}
	// The endpoint first: after that the provider touches none of its buffers.
	if (e->ep)
		fi_close(&e->ep->fid);
	if (e->av)
		fi_close(&e->av->fid);
	if (e->cq)
		fi_close(&e->cq->fid);
	free(e);
}

int fab_ep_waits(const struct fab_ep *e) { return e->fd >= 0; }

int fab_ep_name(struct fab_ep *e, uint8_t *name, size_t *len) { return fi_getname(&e->ep->fid, name, len); }

int fab_ep_peer(struct fab_ep *e, const uint8_t *name)
{
	int n = fi_av_insert(e->av, name, 1, &e->peer, 0, NULL);
	if (n == 1 && e->peer != FI_ADDR_NOTAVAIL)
		return 0;
	return n < 0 ? n : -FI_EADDRNOTAVAIL;
}

int fab_reg(struct fab *f, struct fab_ep *e, void *buf, size_t len, int target, uint64_t key, struct fab_mr *out)
{
	int rc;
	f->what = "fi_mr_reg";
	uint64_t access = target ? FI_REMOTE_WRITE | FI_REMOTE_READ : FI_WRITE | FI_READ;
	if ((rc = fi_mr_reg(f->domain, buf, len, access, 0, key, 0, &out->mr, NULL)))
		return rc;
	if (f->mr_endpoint) {
		f->what = "fi_mr_bind";
		if ((rc = fi_mr_bind(out->mr, &e->ep->fid, 0)) || (rc = fi_mr_enable(out->mr))) {
			fab_unreg(out);
			return rc;
		}
	}
	f->what = "";
	out->desc = fi_mr_desc(out->mr);
	out->key = fi_mr_key(out->mr);
	return 0;
}

void fab_unreg(struct fab_mr *m)
{
	if (m->mr)
		fi_close(&m->mr->fid);
	m->mr = NULL;
}

int fab_step_alloc(struct fab_step **out, uint32_t max_eps)
{
	struct fab_step *s = calloc(1, sizeof *s);
	if (s) {
		s->max_eps = max_eps;
		s->eps = calloc(max_eps, sizeof *s->eps);
		s->polls = calloc(max_eps + 1, sizeof(struct pollfd));
		s->fids = calloc(max_eps, sizeof *s->fids);
		if (s->eps && s->polls && s->fids) {
			*out = s;
			return 0;
		}
		fab_step_free(s);
	}
	return -FI_ENOMEM;
}

void fab_step_free(struct fab_step *s)
{
	free(s->eps);
	free(s->polls);
	free(s->fids);
	free(s);
}

static int post(struct fab_write *w)
{
	struct fab_ep *e = w->ep;
	void *ctx = &e->ctx[w->op];
	if (w->read)
		return (int)fi_read(e->ep, (void *)w->buf, w->len, w->desc, e->peer, w->addr, w->key, ctx);
	if (w->note)
		return (int)fi_writedata(e->ep, w->buf, w->len, w->desc, w->imm, e->peer, w->addr, w->key, ctx);
	return (int)fi_write(e->ep, w->buf, w->len, w->desc, e->peer, w->addr, w->key, ctx);
}

static int op_of(struct fab_ep *e, void *ctx)
{
	struct fi_context2 *c = ctx;
	return c >= e->ctx && c < e->ctx + FAB_OPS ? (int)(c - e->ctx) : -1;
}

// take takes the completions of one endpoint.
static void take(struct fab_step *s, uint32_t i)
{
	struct fab_ep *e = s->eps[i];
	struct fi_cq_data_entry c[16];
	while (s->ndone + 16 < FAB_DONE) {
		ssize_t n = fi_cq_read(e->cq, c, 16);
		if (n == -FI_EAVAIL) {
			struct fi_cq_err_entry ee = {0};
			if (fi_cq_readerr(e->cq, &ee, 0) != 1)
				return;
			s->done[s->ndone++] = (struct fab_done){i, op_of(e, ee.op_context), ee.err ? -ee.err : -FI_EIO};
			continue;
		}
		if (n < 0) {
			if (n != -FI_EAGAIN && n != -FI_EINTR)
				s->done[s->ndone++] = (struct fab_done){i, -1, (int)n};
			return;
		}
		for (ssize_t k = 0; k < n; k++) {
			int op = op_of(e, c[k].op_context);
			if (op >= 0)
				s->done[s->ndone++] = (struct fab_done){i, op, 0};
		}
		if (n < 16)
			return;
	}
}

// wait_fds waits for n descriptors or wake, which it empties.
static void wait_fds(struct pollfd *p, int n, int wake, int timeout_us)
{
	p[n] = (struct pollfd){.fd = wake, .events = POLLIN};
	struct timespec t = {timeout_us / 1000000, timeout_us % 1000000 * 1000L};
	if (ppoll(p, n + 1, timeout_us < 0 ? NULL : &t, NULL) > 0 && p[n].revents) {
		uint64_t v;
		if (read(wake, &v, sizeof v) < 0) {
			// Another wake will come: the descriptor does not block.
		}
	}
}

int fab_step_run(struct fab *f, struct fab_step *s, int waiting)
{
	uint32_t posted = 0;
	s->ndone = 0;
	for (uint32_t i = 0; i < s->nwrites; i++) {
		struct fab_write *w = &s->writes[i];
		w->status = w->ep->again ? -FI_EAGAIN : post(w);
		if (w->status)
			w->ep->again = 1; // the order of its writes is kept
		else
			posted++;
	}
	for (uint32_t i = 0; i < s->nwrites; i++)
		s->writes[i].ep->again = 0;
	for (uint32_t i = 0; i < s->neps; i++)
		take(s, i);
	if (!waiting || posted || s->ndone)
		return 0;
	struct pollfd *p = s->polls;
	int n = 0;
	for (uint32_t i = 0; i < s->neps; i++) {
		struct fab_ep *e = s->eps[i];
		if (e->fd < 0)
			continue;
		s->fids[n] = &e->cq->fid;
		p[n++] = (struct pollfd){.fd = e->fd, .events = POLLIN};
	}
	s->nfds = n;
	return n == 0 || fi_trywait(f->fabric, (struct fid **)s->fids, n) == FI_SUCCESS;
}

void fab_step_wait(struct fab_step *s, int wake, int timeout_us) { wait_fds(s->polls, s->nfds, wake, timeout_us); }

// immediates returns those among n completions, or the error that n is.
static int immediates(struct fab_ep *e, const struct fi_cq_data_entry *c, ssize_t n, uint32_t *imm)
{
	int got = 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry ee = {0};
		fi_cq_readerr(e->cq, &ee, 0); // a write that failed, or a peer that left: nothing was announced
		return 0;
	}
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		return 0;
	for (ssize_t k = 0; k < n; k++)
		if (c[k].flags & FI_REMOTE_CQ_DATA)
			imm[got++] = (uint32_t)c[k].data;
	return n < 0 ? (int)n : got;
}

int fab_recv(struct fab *f, struct fab_ep *e, uint32_t *imm, int max, int wake, int timeout_us)
{
	struct fi_cq_data_entry c[64];
	if (max > 64)
		max = 64;
	ssize_t n = fi_cq_read(e->cq, c, max);
	if (n != -FI_EAGAIN || !timeout_us)
		return immediates(e, c, n, imm);
	struct pollfd p[2] = {{.fd = e->fd, .events = POLLIN}};
	struct fid *fid = &e->cq->fid;
	if (e->fd < 0 || fi_trywait(f->fabric, &fid, 1) == FI_SUCCESS)
		wait_fds(p, e->fd >= 0, wake, timeout_us);
	return immediates(e, c, fi_cq_read(e->cq, c, max), imm);
}
