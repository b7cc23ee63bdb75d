// A thin layer over libfabric for this package: what takes many libfabric
// calls in a row is one call here, so that Go crosses into C once for it.
// Everything returns 0 (or a count) or a negative libfabric error.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define FAB_OPS 128	 // writes under way at one endpoint
#define FAB_BATCH 32 // writes posted in one step
#define FAB_DONE 256 // completions taken in one step
#define FAB_NAME 128 // bytes of an endpoint's address

struct fi_info;
struct fid_fabric;
struct fid_domain;
struct fid_mr;

struct fab {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	const char *what; // the call that failed
	int ordered;	  // write-after-write order is granted, for writes of any size up to order_size
	int delivery;	  // a completion says that the bytes are in place at the target
	int virt_addr;	  // remote addresses are pointers
	int prov_key;	  // the provider chooses keys
	int mr_endpoint;  // memory is registered with each endpoint
	size_t key_size;
	size_t max_write;
	size_t order_size;
	char provider[64];
	char domain_name[64];
};

struct fab_mr {
	struct fid_mr *mr;
	void *desc;
	uint64_t key;
};

struct fab_ep; // an endpoint with an address vector and a completion queue of its own

int fab_open(struct fab *f, const char *provider, const char *node); // node NULL: any address
void fab_close(struct fab *f);
const char *fab_strerror(int err);

int fab_ep_open(struct fab *f, struct fab_ep **out);
void fab_ep_close(struct fab_ep *e);
int fab_ep_name(struct fab_ep *e, uint8_t *name, size_t *len);
int fab_ep_peer(struct fab_ep *e, const uint8_t *name);
int fab_ep_waits(const struct fab_ep *e); // 0: the caller must look now and then

int fab_reg(struct fab *f, struct fab_ep *e, void *buf, size_t len, int target, uint64_t key, struct fab_mr *out);
void fab_unreg(struct fab_mr *m);

// A write, or a read, to be posted. Memory and context stay in use until its completion.
struct fab_write {
	struct fab_ep *ep;
	const void *buf;
	void *desc;
	size_t len;
	uint64_t addr, key;
	uint32_t op; // below FAB_OPS, free at its endpoint
	uint32_t imm;
	int32_t note;	// the immediate is sent
	int32_t read;	// it is a read into buf, without an immediate
	int32_t status; // out: 0, or an error; -FI_EAGAIN is to be tried again
};

struct fab_done {
	uint32_t ep; // index in eps
	int32_t op;	 // -1: the endpoint as a whole
	int32_t err; // 0 or an error
};

// One step: post writes and take completions.
struct fab_step {
	uint32_t nwrites, neps, ndone;
	struct fab_write writes[FAB_BATCH];
	struct fab_done done[FAB_DONE];
	struct fab_ep **eps; // those whose completions are taken
	uint32_t max_eps;
	// Of a wait, for max_eps+1.
	void *polls;
	void **fids;
	int nfds;
};

int fab_step_alloc(struct fab_step **out, uint32_t max_eps);
void fab_step_free(struct fab_step *s);
// If waiting is set and the step did nothing, it returns 1 when fab_step_wait may
// be called for its endpoints.
int fab_step_run(struct fab *f, struct fab_step *s, int waiting);
// The only call that may run beside others. wake is an eventfd that ends the wait
// and is emptied then. timeout_us < 0 waits for ever; what has no descriptor to
// wait on is looked at when the wait is over.
void fab_step_wait(struct fab_step *s, int wake, int timeout_us);

// What a target sees: immediates, up to max of them. It waits as fab_step_wait does.
int fab_recv(struct fab *f, struct fab_ep *e, uint32_t *imm, int max, int wake, int timeout_us);

extern const int fab_eagain;
