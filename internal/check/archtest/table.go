package archtest

// layer is how far a package is from the expressions on which everything
// stands. Packages import only from layers before their own.
type layer int

const (
	expressions layer = iota // what a schedule is
	nouns                    // jobs, runs and their policies as plain data
	contracts                // interfaces that the parts of a server meet at
	core                     // decisions: pure functions of state and time
	foundations              // effects that several shells need, each one thing
	steps                    // how a store makes a step, wherever it keeps things
	kinds                    // what shells of one kind have alike: all but what each is about
	shells                   // effects: clocks, stores, processes, the network
	useCases                 // what a server can be asked to do, with roles and namespaces
	faces                    // parse requests and print results, and decide nothing
	node                     // wires the shells together
	assembly                 // puts the process of a server together
	commandLine              // what people type
	programs                 // main packages
	aside                    // for tests and generation: no program has it inside
)

// layerNames are the names of the layers in docs/architecture.md.
var layerNames = [...]string{
	expressions: "expressions", nouns: "nouns", contracts: "contracts", core: "core", foundations: "foundations", steps: "steps", kinds: "kinds", shells: "shells",
	useCases: "use cases", faces: "faces", node: "node", assembly: "assembly", commandLine: "command line", programs: "programs", aside: "aside",
}

func (l layer) String() string { return layerNames[l] }

// line is what one package may do.
type line struct {
	layer layer

	// pure packages decide and do nothing else: no clock, no input or output,
	// no goroutine, no chance. pureImports says what they may import.
	pure bool
	// std adds packages of the standard library to pureImports.
	std []string

	// imports are the packages of this module that it may import.
	imports []string
	// modules are the packages of other modules that it may import, with what
	// is below them. docs/dependencies.md has the reason for each.
	modules []string
	// testImports and testModules are those that only its tests may import,
	// whatever their layer.
	testImports []string
	testModules []string
}

// table has a line for each package of the module: its line is its design
// review, and may be there before the package is. docs/architecture.md explains
// the layers.
var table = map[string]line{
	"cron": {
		layer: expressions,
		pure:  true,
		// The zone table is embedded, and a zone is built when it is first
		// asked for.
		std: []string{"embed", "sync"},
	},
	"cron/internal/zonegen": {layer: aside},
	"internal/sys/spelling": {layer: expressions, pure: true},
	"internal/cli/systemd":  {layer: expressions, pure: true, std: []string{"embed", "path", "text/template"}},
	"job": {
		layer: nouns,
		pure:  true,
		// What the tags of a type say is read once.
		std:         []string{"sync"},
		imports:     []string{"cron", "internal/sys/spelling"},
		modules:     []string{"go.yaml.in/yaml/v3"},
		testModules: []string{"github.com/santhosh-tekuri/jsonschema/v6"},
	},
	"store": {
		layer: contracts,
		pure:  true,
		// In the signatures of its interfaces.
		std:     []string{"context"},
		imports: []string{"job"},
	},
	"executor": {
		layer: contracts,
		pure:  true,
		// In the signature of its interface.
		std:     []string{"context"},
		imports: []string{"job"},
	},
	"internal/decide/engine": {
		layer: core,
		pure:  true,
		// Steps that share a document share what callers see of it.
		std:     []string{"sync/atomic"},
		imports: []string{"cron", "internal/decide/flow", "job", "store"},
	},
	// Package engine decides about flows by it.
	"internal/decide/flow": {
		layer:   contracts,
		pure:    true,
		imports: []string{"job"},
	},
	"internal/server/draw": {
		layer: core,
		pure:  true,
		std:   []string{"html"}, // it escapes
	},
	"internal/server/i18n": {layer: expressions, pure: true},
	"internal/cli/crontab": {
		layer:       core,
		pure:        true,
		imports:     []string{"cron", "job"},
		testModules: []string{"github.com/rogpeppe/go-internal"},
	},
	"internal/decide/placement": {
		layer:   core,
		pure:    true,
		std:     []string{"sync"}, // Share remembers the last answer
		imports: []string{"job", "store"},
	},
	"internal/decide/preview": {
		layer:   core,
		pure:    true,
		imports: []string{"cron", "job"},
	},
	"internal/decide/runqueue": {
		layer:   core,
		pure:    true,
		imports: []string{"job", "store", "internal/decide/timer"},
	},
	"internal/decide/timer": {layer: expressions, pure: true},
	"internal/remote/xxl":   {layer: expressions, pure: true},
	"internal/cli/xxltables": {
		layer:   core,
		pure:    true,
		imports: []string{"cron", "job"},
		// Its tests take jobs over from a database.
		testImports: []string{"internal/cli/xxlmysql", "test/servers"},
		testModules: []string{"github.com/go-sql-driver/mysql"},
	},
	"internal/cli/xxlmysql": {
		layer:   shells,
		imports: []string{"internal/cli/xxltables"},
		modules: []string{"github.com/go-sql-driver/mysql"},
	},
	"internal/decide/forecast": {
		layer:       core,
		pure:        true,
		testImports: []string{"cron"},
	},
	"internal/sys/clock": {
		layer:   foundations,
		modules: []string{"golang.org/x/sys/unix"},
	},
	"internal/server/signin": {
		layer: shells, imports: []string{"store", "internal/sys/failurelog"}, testImports: []string{"internal/server/signin/provider"},
		modules: []string{"github.com/coreos/go-oidc/v3/oidc", "golang.org/x/oauth2"},
	},
	"internal/node/garbage":   {layer: foundations},
	"internal/sys/parallel":   {layer: foundations},
	"internal/sys/failurelog": {layer: foundations, testImports: []string{"internal/check/logtest"}},
	"internal/decide/planqueue": {
		// The mind of a planner.
		layer:       foundations,
		pure:        true,
		imports:     []string{"job", "store", "internal/decide/runqueue", "internal/decide/engine", "internal/decide/forecast", "internal/decide/placement", "internal/decide/timer"},
		testImports: []string{"internal/decide/stripes"},
	},
	"internal/decide/stripes": {layer: foundations, imports: []string{"job", "internal/decide/runqueue"}},
	"internal/node/output": {
		layer:       foundations,
		imports:     []string{"job"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/decide/notification": {
		// What is said about problems, and when.
		layer:   core,
		pure:    true,
		imports: []string{"job", "store"},
	},
	"internal/node/secret": {
		// Seals values and reads them where they are.
		layer:       foundations,
		imports:     []string{"job", "store", "internal/sys/spelling"},
		testImports: []string{"store/memory"},
	},
	"internal/server/notify": {
		layer:       shells,
		imports:     []string{"job", "store", "internal/decide/notification", "internal/node/secret", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "internal/check/logtest"},
	},
	"internal/server/runlog": {
		layer:       shells,
		imports:     []string{"job", "store", "internal/sys/failurelog"},
		testImports: []string{"internal/check/logtest"},
	},
	"internal/events": {
		layer:       foundations,
		imports:     []string{"job", "store"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/recovery": {layer: shells, imports: []string{"job", "store"}, testImports: []string{"store/memory"}},
	"internal/node/work": {
		// What a worker needs of its cluster, and that on a store.
		layer:       foundations,
		imports:     []string{"job", "store", "internal/decide/engine", "internal/decide/placement"},
		testImports: []string{"store/memory"},
	},
	"internal/remote/wire": {
		// The messages between a server and a worker that reaches no store.
		layer:   foundations,
		imports: []string{"job", "store", "internal/decide/engine"},
	},
	"internal/node/unreported": {
		// The results that the store does not have yet.
		layer:   shells,
		imports: []string{"job", "store", "internal/remote/spool", "internal/remote/wire"},
	},
	"internal/remote": {
		// What a worker needs of its cluster, over HTTP.
		layer:       shells,
		imports:     []string{"client", "job", "store", "internal/decide/engine", "internal/node/secret", "internal/sys/failurelog", "internal/remote/wire", "internal/node/work"},
		testImports: []string{"executor", "internal/server/auth", "internal/server/httpapi", "internal/node", "internal/node/unreported", "internal/node/output", "internal/server/service", "store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/membership": {
		layer:       shells,
		imports:     []string{"job", "store", "internal/decide/engine", "internal/sys/clock", "internal/sys/failurelog"},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/worker": {
		layer: shells,
		imports: []string{
			"job", "store", "executor", "internal/decide/runqueue", "internal/decide/engine",
			"internal/sys/clock", "internal/decide/stripes", "internal/node/output", "internal/node/secret", "internal/sys/failurelog", "internal/remote/wire", "internal/node/work",
		},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli/wrap": {
		// What belfry exec does beside the command line.
		layer:       shells,
		imports:     []string{"client", "job", "internal/remote/spool"},
		modules:     []string{"golang.org/x/sys/unix", "golang.org/x/term"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/server/callback": {layer: shells, imports: []string{"job", "store"}},
	"internal/sys/egress":      {layer: foundations},
	"internal/remote/spool":    {layer: foundations},
	"executor/xxl": {
		layer:       shells,
		imports:     []string{"executor", "job", "store", "internal/node/output", "internal/sys/egress", "internal/sys/failurelog", "internal/remote/xxl"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"executor/http": {
		layer:       shells,
		imports:     []string{"executor", "job", "internal/sys/egress"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/sys/fdpass": {layer: foundations},
	"executor/shell": {
		layer:       shells,
		imports:     []string{"executor", "internal/sys/fdpass", "job"},
		modules:     []string{"golang.org/x/sys/unix"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"store/memory": {
		layer:       shells,
		imports:     []string{"cron", "job", "store", "store/internal/ledger", "internal/decide/engine", "internal/events"},
		testImports: []string{"store/storetest"},
	},
	"store/joined": {
		// One store of two.
		layer:       shells,
		imports:     []string{"job", "store", "internal/decide/engine"},
		testImports: []string{"store/memory", "store/sqlite", "store/storetest"},
	},
	"history/mongo": {
		layer:       shells,
		imports:     []string{"job", "store"},
		modules:     []string{"go.mongodb.org/mongo-driver/v2"},
		testImports: []string{"store/joined", "store/memory", "store/storetest", "test/servers"},
	},
	"store/internal/ledger": {
		// All of a store but where it keeps things.
		layer:       steps,
		imports:     []string{"job", "store", "store/internal/columns", "internal/decide/engine", "internal/events"},
		modules:     []string{"github.com/google/btree"},
		testImports: []string{"store/memory"},
	},
	"store/storetest": {
		layer:   aside,
		imports: []string{"cron", "job", "store", "store/memory", "internal/decide/flow"},
	},
	"internal/node": {
		layer: node,
		imports: []string{
			"cron", "job", "store", "executor", "internal/decide/engine", "internal/decide/placement", "internal/decide/timer",
			"internal/sys/clock", "internal/node/garbage", "internal/decide/stripes", "internal/node/recovery", "internal/node/output", "internal/node/membership", "internal/node/planner", "internal/node/worker",
			"internal/sys/failurelog", "internal/node/watchdog", "internal/node/work",
		},
		testImports: []string{"store/memory", "internal/server/callback", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli/storecopy": {
		// It copies and checks stores as wholes.
		layer:       shells,
		imports:     []string{"job", "store", "internal/decide/engine", "internal/decide/notification"},
		testImports: []string{"store/joined", "store/memory", "store/sqlite", "store/postgres", "store/mysql", "store/etcd", "store/redis", "test/servers"},
		testModules: []string{"modernc.org/sqlite", "github.com/jackc/pgx/v5"},
	},
	"internal/server/metrics": {
		layer:       shells,
		imports:     []string{"job", "store"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.yaml.in/yaml/v3"},
	},
	"internal/node/planner": {
		layer:       shells,
		imports:     []string{"job", "store", "internal/decide/runqueue", "internal/decide/engine", "internal/decide/forecast", "internal/decide/stripes", "internal/decide/planqueue", "internal/sys/failurelog"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/node/watchdog": {
		layer:       shells,
		imports:     []string{"job", "executor", "internal/sys/clock", "internal/sys/fdpass"},
		modules:     []string{"golang.org/x/sys/unix"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"client": {
		layer:   foundations,
		imports: []string{"job"},
	},
	"internal/server/auth":     {layer: foundations, imports: []string{"store"}, testImports: []string{"store/memory"}},
	"internal/server/health":   {layer: shells, imports: []string{"job", "store", "internal/server/config"}},
	"internal/server/nodeinfo": {layer: foundations, imports: []string{"job", "store"}, testImports: []string{"store/memory"}},
	"internal/server/config":   {layer: foundations, imports: []string{"cron", "job", "store"}},
	"internal/server/service": {
		layer: useCases,
		imports: []string{
			"cron", "job", "store", "client", "internal/server/auth", "internal/decide/engine", "internal/events", "internal/decide/flow", "internal/decide/forecast", "internal/node/garbage", "internal/decide/notification", "internal/sys/parallel", "internal/decide/placement",
			"internal/server/nodeinfo", "internal/decide/preview", "internal/node/output", "internal/node/secret", "internal/sys/spelling", "internal/remote/wire", "internal/node/work",
		},
		modules:     []string{"github.com/rogpeppe/go-internal/diff"},
		testImports: []string{"store/memory"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/server/httpapi": {
		// No store: what it shows and changes it asks of the service, which checks the caller.
		layer:       faces,
		imports:     []string{"job", "client", "internal/server/auth", "internal/events", "internal/sys/parallel", "internal/server/service", "internal/sys/failurelog", "internal/remote/wire"},
		modules:     []string{"github.com/danielgtaylor/huma/v2", "golang.org/x/sync/semaphore"},
		testImports: []string{"store", "store/memory", "internal/decide/engine", "internal/decide/forecast", "internal/decide/notification", "internal/node/output", "internal/server/nodeinfo", "internal/node/secret"},
		testModules: []string{"github.com/santhosh-tekuri/jsonschema/v6", "go.uber.org/goleak"},
	},
	"internal/server/web": {
		// A page asks the service, and reads no store.
		layer:       faces,
		imports:     []string{"cron", "job", "client", "internal/server/auth", "internal/cli/crontab", "internal/server/draw", "internal/decide/flow", "internal/decide/forecast", "internal/server/i18n", "internal/server/service", "internal/server/signin"},
		modules:     []string{"go.yaml.in/yaml/v3"}, // forms change documents and keep their comments
		testImports: []string{"internal/decide/engine", "internal/server/signin/provider", "store", "store/memory", "internal/decide/notification"},
	},
	"store/internal/columns": {
		// It hands hints to who listens, which is its one effect.
		layer:   foundations,
		imports: []string{"job", "store", "internal/decide/engine"},
	},
	"store/internal/refill": {layer: foundations, imports: []string{"store"}, testModules: []string{"go.uber.org/goleak"}},
	"store/internal/sqldb": {
		// All of a store but the database.
		layer:   kinds,
		imports: []string{"job", "store", "store/internal/columns", "store/internal/ledger", "store/internal/refill", "internal/sys/clock", "internal/decide/engine", "internal/events"},
	},
	"store/internal/replica": {
		// A backend of the ledger on any key-value store with a feed of changes.
		layer:       kinds,
		imports:     []string{"job", "store", "store/internal/columns", "store/internal/ledger", "store/internal/refill", "internal/decide/engine", "internal/events"},
		modules:     []string{"github.com/google/btree"},
		testImports: []string{"store/joined", "store/memory", "store/storetest"},
	},
	"store/internal/address": {layer: foundations, imports: []string{}},
	"store/redis": {
		layer:       shells,
		imports:     []string{"job", "store", "store/internal/address", "store/internal/ledger", "store/internal/replica"},
		modules:     []string{"github.com/redis/rueidis"},
		testImports: []string{"store/joined", "store/memory", "store/storetest", "test/servers"},
	},
	"store/etcd": {
		layer:       shells,
		imports:     []string{"job", "store", "store/internal/address", "store/internal/ledger", "store/internal/replica"},
		modules:     []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3", "go.uber.org/zap", "google.golang.org/grpc"},
		testImports: []string{"store/storetest", "test/servers"},
	},
	"store/mysql": {
		layer:       shells,
		imports:     []string{"store", "store/internal/sqldb"},
		modules:     []string{"github.com/go-sql-driver/mysql"},
		testImports: []string{"job", "store/storetest", "test/servers"},
	},
	"store/postgres": {
		layer:       shells,
		imports:     []string{"store", "store/internal/sqldb"},
		modules:     []string{"github.com/jackc/pgx/v5"},
		testImports: []string{"job", "store/storetest", "test/servers"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"store/sqlite": {
		layer:       shells,
		imports:     []string{"job", "store", "store/internal/columns", "store/internal/sqldb"},
		modules:     []string{"modernc.org/sqlite", "modernc.org/libc"},
		testImports: []string{"store/storetest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	".": {
		// The package that Go programs import: no store but the one that they name.
		layer: assembly,
		imports: []string{
			"cron", "job", "store", "executor", "client",
			"internal/server/auth", "internal/sys/clock", "internal/node", "internal/node/output", "internal/node/unreported", "internal/remote", "internal/server/service",
		},
		testImports: []string{"belfrytest", "store/memory", "internal/server/auth", "internal/server/httpapi", "internal/server/service"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"belfrytest": {layer: aside, imports: []string{".", "client", "job", "store", "store/memory"}},
	"internal/server": {
		layer: assembly,
		imports: []string{
			"history/mongo", "client", "cron", "job", "store", "internal/decide/placement", "store/etcd", "store/joined", "store/mysql", "store/postgres", "store/redis", "store/sqlite", "executor", "executor/shell", "executor/http", "executor/xxl",
			"internal/server/auth", "internal/server/callback", "internal/server/health", "internal/sys/clock", "internal/server/config", "internal/server/runlog", "internal/events", "internal/server/httpapi", "internal/sys/fdpass", "internal/node/recovery", "internal/server/metrics", "internal/node", "internal/decide/notification", "internal/server/notify", "internal/server/nodeinfo", "internal/remote", "internal/node/secret", "internal/server/service", "internal/server/signin", "internal/sys/failurelog", "internal/node/unreported", "internal/node/watchdog", "internal/server/web", "internal/remote/wire", "internal/node/work", "internal/node/worker",
		},
		testImports: []string{"store/memory", "internal/check/logtest"},
		testModules: []string{"go.uber.org/goleak"},
	},
	"internal/cli": {
		layer: commandLine,
		imports: []string{
			"history/mongo", "cron", "job", "store", "store/etcd", "store/mysql", "store/postgres", "store/redis", "store/sqlite", "executor/shell", "client",
			"internal/server/auth", "internal/server/health", "internal/server/config", "internal/cli/crontab", "internal/decide/flow", "internal/server/i18n", "internal/node", "internal/server/notify", "internal/sys/parallel", "internal/decide/preview", "internal/node/secret", "internal/server", "internal/sys/spelling", "internal/cli/storecopy", "internal/cli/systemd", "internal/node/watchdog", "internal/node/worker", "internal/cli/wrap", "internal/cli/xxlmysql", "internal/cli/xxltables",
		},
		testImports: []string{"internal/check/helptest", "internal/check/logtest"},
		modules:     []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", "go.yaml.in/yaml/v3"},
		testModules: []string{"github.com/rogpeppe/go-internal/testscript", "go.uber.org/goleak"},
	},
	"cmd/belfry": {
		layer:   programs,
		imports: []string{"internal/cli", "internal/server", "internal/node/watchdog"},
	},
	"robfig": {
		// The interface of robfig/cron, without that module.
		layer: commandLine, imports: []string{".", "cron", "job", "store", "store/memory"}, testImports: []string{"belfrytest"},
	},
	"otelbelfry": {
		layer: commandLine, imports: []string{"."}, modules: []string{"go.opentelemetry.io/otel"}, testImports: []string{"belfrytest"},
	},
	"examples/embedded":  {layer: programs, imports: []string{".", "store", "store/postgres", "store/sqlite"}},
	"examples/flow":      {layer: programs, imports: []string{".", "store/memory"}},
	"examples/handlers":  {layer: programs, imports: []string{".", "store/postgres"}},
	"examples/sharding":  {layer: programs, imports: []string{".", "store/memory"}},
	"examples/connected": {layer: programs, imports: []string{"."}},
	// It sees the programs from outside.
	"test/programs":                   {layer: aside, testImports: []string{"test/servers"}},
	"test/programs/ticker":            {layer: programs, imports: []string{".", "job", "store", "store/etcd", "store/mysql", "store/postgres", "store/redis", "store/sqlite"}},
	"internal/check/archtest":         {layer: aside},
	"internal/check/helptest":         {layer: aside},
	"internal/server/signin/provider": {layer: aside},
	"internal/check/logtest":          {layer: aside},
	"internal/check/sim": {
		layer:       aside,
		imports:     []string{"cron", "job", "store", "store/memory", "internal/decide/runqueue", "internal/server/callback", "internal/decide/engine", "internal/decide/stripes", "internal/node/recovery", "internal/decide/placement", "internal/decide/planqueue"},
		testImports: []string{"executor", "internal/node"},
	},
	// Its tests have the build tag servers.
	"test/cluster": {layer: aside, testImports: []string{"client", "job", "test/e2e/evidence", "test/servers"}},
	// The end-to-end tests see a server from outside: its program, its API and
	// what its jobs write.
	"test/e2e": {
		layer: aside, imports: []string{"job", "client", "test/e2e/evidence"},
		testImports: []string{"internal/check/helptest"},
		modules:     []string{"golang.org/x/sys/unix"}, // to make a file immutable
		testModules: []string{"modernc.org/sqlite"},    // to make a store of an earlier version
	},
	"test/e2e/evidence": {
		layer: nouns,
		pure:  true,
	},
	// Faults of the code that tests must notice.
	"test/mutations": {layer: aside},
	// The end of make test.
	"test/report": {layer: aside},
	// A reader of the tutorial.
	"test/tutorial": {layer: aside, testImports: []string{"test/servers"}},
	// Its tests have the build tag servers.
	"test/web": {layer: aside, testImports: []string{"test/servers"}, testModules: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto"}},
	// It starts database servers for the tests that need one.
	"test/servers":     {layer: aside, modules: []string{"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql"}},
	"test/e2e/witness": {layer: programs, imports: []string{"test/e2e/evidence"}},
}

// pureImports are the packages of the standard library that reach nothing
// outside the program and keep no time of their own. Some are in it without the
// functions named in impureNames.
var pureImports = []string{
	"bufio", "bytes", "cmp", "container/heap", "crypto/sha256", "encoding", "encoding/base64", "encoding/binary",
	"encoding/hex", "encoding/json", "errors", "fmt", "hash/fnv", "io", "iter",
	"maps", "math", "math/big", "math/bits", "math/rand/v2", "net/url", "path", "path/filepath",
	"reflect", "regexp", "slices", "sort", "strconv", "strings",
	"text/template", "text/template/parse", "time", "unicode", "unicode/utf8",
}

// impureNames are what pure packages must not touch in packages that they may
// import.
var impureNames = map[string][]string{
	"fmt":           {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"path/filepath": {"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"time": {
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker",
		"NewTimer", "Local", "LoadLocation",
	},
	// What is left makes a generator from a seed, which can be logged.
	"math/rand/v2": {
		"ExpFloat64", "Float32", "Float64", "Int", "Int32", "Int32N", "Int64",
		"Int64N", "IntN", "N", "NormFloat64", "Perm", "Shuffle", "Uint", "Uint32",
		"Uint32N", "Uint64", "Uint64N", "UintN",
	},
}

// emptyNames say nothing about what is in a package, so that anything ends up
// in it.
var emptyNames = []string{
	"base", "common", "helper", "helpers", "lib", "misc", "shared", "tools",
	"util", "utils",
}
