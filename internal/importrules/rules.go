// Package importrules checks who imports whom. Its test fails when an import
// goes against the table of ARCHITECTURE.md, of which the rules here are the
// form that a machine reads.
package importrules

// A rule says what the non-test files of one folder may import.
type rule struct {
	// own lists folders of this module; "..." stands for every folder, and a
	// trailing "/..." for a folder and everything under it.
	own []string
	// blackBox folders hold tests of what a user sees: their test files keep to
	// own as well. The test files of other folders may import any folder but cmd.
	blackBox bool
	why      string
}

const module = "github.com/objcached/objcached"

// rules has a row for every folder that holds Go files.
var rules = map[string]rule{
	"cmd/objcached":   {own: []string{"..."}, why: "wires everything together"},
	"internal/server": {own: []string{"..."}, why: "the wiring behind `objcached serve`, apart from flags"},
	"internal/cli":    {own: []string{"..."}, why: "the commands, apart from main"},

	"gateway":         {own: []string{"storage", "descriptor", "tenant", "checksum", "gateway/...", "internal/reqid"}, why: "HTTP knows interfaces, no backend and no data path"},
	"gateway/sigv4":   {why: "a signature is a function of a request and a key"},
	"gateway/payload": {own: []string{"checksum", "gateway/sigv4"}, why: "a body decoder knows nothing of objects"},

	"tenant":      {own: []string{"internal/rate"}, why: "identities are plain data"},
	"descriptor":  {why: "the wire format is shared by client and server"},
	"agg":         {own: []string{"descriptor"}, why: "planning is pure"},
	"checksum":    {why: "sums are functions of bytes"},
	"bwsched":     {why: "a policy is a function of requests"},
	"bwsched/sim": {own: []string{"bwsched"}, why: "plays policies, and knows nothing that delivers"},

	"bwsched/profile": {own: []string{"bwsched"}, why: "what calibration writes and a server reads, apart from both"},
	"bwsched/pace":    {own: []string{"bwsched"}, why: "holds callers to rates, and knows neither bytes nor where they come from"},

	"transport":               {why: "an interface; transports lie below it"},
	"transport/stream":        {own: []string{"transport"}, why: "one transport"},
	"transport/registry":      {own: []string{"transport"}, why: "who may have what written where; knows no transport"},
	"transport/shm":           {own: []string{"transport", "transport/registry"}, why: "one transport"},
	"transport/fabric":        {own: []string{"transport", "transport/registry", "transport/fabric/device"}, why: "one transport; the only code of ours with C in it, behind a build tag"},
	"transport/transporttest": {own: []string{"transport"}, why: "the contract, apart from any transport"},
	"deliver":                 {own: []string{"descriptor", "agg", "storage", "bwsched/pace", "bwsched/profile", "transport/..."}, why: "the data path sees interfaces, no backend and no HTTP"},

	"transport/fabric/device":            {why: "finds hardware by the name of an interface; doctor asks it without libfabric"},
	"transport/fabric/device/devicetest": {own: []string{"transport/fabric/device"}, why: "the hardware of other machines, for tests"},

	"storage":               {own: []string{"checksum"}, why: "the interfaces"},
	"storage/meta":          {why: "a small interface"},
	"storage/blob":          {why: "a small interface"},
	"storage/vfile":         {why: "the file layer under the embedded backends"},
	"storage/meta/metatest": {own: []string{"storage/meta"}, why: "the contract of a small interface"},
	"storage/blob/blobtest": {own: []string{"storage/blob"}, why: "the contract of a small interface"},
	"storage/storagetest":   {own: []string{"storage", "checksum"}, why: "the contract, apart from any backend"},
	"storage/pebblekv":      {own: []string{"storage/meta", "storage/vfile"}, why: "the embedded meta"},
	"storage/volume":        {own: []string{"storage/blob", "storage/vfile"}, why: "the embedded blob"},
	"storage/object":        {own: []string{"storage", "storage/meta", "storage/blob", "checksum", "internal/reqid"}, why: "the object model, written once over the two interfaces"},
	"storage/local":         {own: []string{"storage/...", "checksum"}, why: "puts the embedded store together"},

	"client":            {own: []string{"descriptor", "transport/...", "internal/lowwater"}, why: "users import it; the server must not come along"},
	"client/clienttest": {why: "a store for tests that knows only the wire, and shares no code with either side"},
	"bench":             {own: []string{"client", "descriptor", "checksum", "internal/lowwater", "transport/fabric", "bwsched", "bwsched/sim", "bwsched/profile"}, why: "measures through the client, as a user does, beside what the model predicts and the fabric's own bare loop"},

	"conformance": {own: []string{"client", "descriptor", "internal/serverproc"}, blackBox: true, why: "black box: knows only the wire"},
	"e2e":         {own: []string{"client", "descriptor", "internal/serverproc"}, blackBox: true, why: "black box: knows only the binary"},

	"internal/lowwater":    {why: "a socket option of client connections"},
	"internal/rate":        {why: "reads a number with a unit"},
	"internal/doctor":      {own: []string{"transport/fabric/..."}, why: "looks at the machine, not at a store or a server"},
	"internal/reqid":       {why: "carries an id in a context"},
	"internal/importrules": {why: "checks the others"},
	"internal/serverproc":  {why: "starts the built binary for the black-box suites"},
}

// A restriction keeps one import to the folders that need it.
type restriction struct {
	path  string   // import path, or a prefix of it ending in "/..."
	only  []string // folders, with "/..." as in rule.own
	tests bool     // test files anywhere may import it
	why   string
}

// restrictions holds for own packages and for modules of others alike.
var restrictions = []restriction{
	{path: module + "/storage/pebblekv", only: []string{"cmd/...", "internal/server", "storage/local"}, tests: true, why: "a concrete backend: code above sees meta.Store"},
	{path: module + "/storage/volume", only: []string{"cmd/...", "internal/server", "storage/local"}, tests: true, why: "a concrete backend: code above sees blob.Store"},
	{path: module + "/storage/local", only: []string{"cmd/...", "internal/server", "internal/cli"}, tests: true, why: "a concrete backend: code above sees storage.Store"},
	{path: module + "/cmd/...", why: "commands are not libraries"},
	{path: "github.com/spf13/cobra", only: []string{"cmd/...", "bench", "internal/cli"}, why: "flags belong to commands"},
	{path: "github.com/cockroachdb/pebble/...", only: []string{"storage/pebblekv", "storage/vfile", "storage/local"}, tests: true, why: "the embedded backend alone knows which key-value store it is"},
	{path: "github.com/go-chi/chi/...", only: []string{"gateway", "internal/server"}, tests: true, why: "routing belongs to the gateway"},
	{path: "github.com/Mellanox/rdmamap", only: []string{"transport/fabric/device"}, why: "one place knows how interfaces and RDMA devices belong together"},
	{path: "github.com/aws/...", only: []string{"conformance", "e2e", "bench"}, tests: true, why: "an SDK is a client's affair"},
	{path: "github.com/minio/minio-go/...", only: []string{"client", "conformance", "e2e", "bench"}, tests: true, why: "an SDK is a client's affair"},
	{path: "gonum.org/v1/plot/...", only: []string{"bench"}, why: "pictures are of results"},
	{path: "github.com/prometheus/...", only: []string{"cmd/...", "internal/...", "gateway"}, tests: true, why: "code below reports by plain values and callbacks"},
	{path: "net/http", only: []string{"cmd/...", "internal/...", "gateway/...", "client/...", "conformance", "e2e", "bench"}, tests: true, why: "the data path and the stores know nothing of HTTP"},
}

// pure folders take time, files and randomness as parameters.
var pure = map[string][]string{
	"agg":        {"os", "net", "time", "math/rand", "math/rand/v2", "context"},
	"descriptor": {"os", "net", "time", "math/rand", "math/rand/v2"},
	"checksum":   {"os", "net", "time", "math/rand", "math/rand/v2"},
	// time for durations alone
	"bwsched":     {"os", "net", "math/rand", "math/rand/v2", "context", "sync"},
	"bwsched/sim": {"os", "net", "math/rand", "math/rand/v2", "context", "sync"},
}
