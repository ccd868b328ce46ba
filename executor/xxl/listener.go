package xxlexec

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/remote/xxl"
)

// bodyMax bounds a request of an executor: callbacks come in batches, with messages of 50,000
// characters.
const bodyMax = 16 << 20

// The paths of an admin, after its root.
const (
	pathRegistry = "/api/registry"
	pathRemove   = "/api/registryRemove"
	pathCallback = "/api/callback"
	// oldRoot is the root of admins before 3.4.1; later ones have none.
	oldRoot = "/xxl-job-admin"
)

// ServeHTTP answers executors, on the paths of an admin that they call.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := xxl.Accepted()
	if err := a.answer(w, r); err != nil {
		var refused xxl.Refusal
		if !errors.As(err, &refused) {
			a.log.Error("a request of an executor could not be taken; most executors repeat it", "path", r.URL.Path, "error", err)
			refused = "Belfry could not store it; try again."
		}
		answer = xxl.Refused(string(refused))
	}
	w.Header().Set("Content-Type", xxl.ContentType)
	_, _ = w.Write(answer) // an error means that the executor has disconnected
}

// answer handles a request. The error is a Refusal if the request is wrong.
func (a *Admin) answer(w http.ResponseWriter, r *http.Request) error {
	s := a.current.Load()
	if r.Method != http.MethodPost {
		return xxl.RefusedMethod
	}
	path := pathOfRequest(r.URL.Path)
	if path != pathRegistry && path != pathRemove && path != pathCallback {
		return xxl.RefusedPath(r.URL.Path)
	}
	of, ok := a.whose(s, r.Header.Get(xxl.HeaderToken))
	if !ok {
		a.failures.add(r.RemoteAddr, a.log)
		return xxl.RefusedToken
	}
	a.known(r.Context())
	body, err := readBody(w, r)
	if err != nil {
		return xxl.RefusedArgument
	}
	if path == pathCallback {
		return a.answerCallbacks(r, body, of)
	}
	registration, err := xxl.ReadRegistration(body)
	if err != nil {
		return err
	}
	if of != "" && of != registration.Group {
		a.failures.add(r.RemoteAddr, a.log) // the token belongs to another group
		return xxl.RefusedToken
	}
	if err := s.checkAddress(registration.Address, isLocal(r.RemoteAddr)); err != nil {
		a.log.Warn("an executor was refused", "group", registration.Group, "address", registration.Address, "caller", r.RemoteAddr, "reason", err)
		return xxl.Refusal("the address " + registration.Address + " is refused: " + err.Error())
	}
	if s.Forward != "" {
		a.forwards.add(forward{path: path, body: body, header: r.Header.Get(xxl.HeaderGroup)})
	}
	if path == pathRemove {
		return a.unregister(r.Context(), registration)
	}
	generation := ""
	if r.Header.Get(xxl.HeaderGroup) != "" {
		generation = generationD
	}
	return a.register(r.Context(), registration, generation)
}

// readBody reads a request, which has at most bodyMax bytes, also when it is uncompressed.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	content, err := uncompressed(r.Header, http.MaxBytesReader(w, r.Body, bodyMax))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(content, bodyMax+1))
	if err == nil && len(body) > bodyMax {
		err = errors.New("the body is too large")
	}
	return body, err
}

// answerCallbacks takes results, as far as they are readable: executors in Go and Node do not
// repeat them.
func (a *Admin) answerCallbacks(r *http.Request, body []byte, of string) error {
	list, unread, err := xxl.ReadCallbacks(body)
	if err != nil {
		return err
	}
	if unread > 0 {
		a.log.Warn("some results of an executor cannot be read, and are left out", "results", unread, "caller", r.RemoteAddr)
	}
	unknown, err := a.take(r.Context(), list, of)
	if err != nil {
		return err
	}
	if len(unknown) == 0 {
		return nil
	}
	if a.current.Load().Forward == "" {
		a.log.Debug("an executor has sent results of runs that are not known", "results", len(unknown), "first", unknown[0].LogID, "caller", r.RemoteAddr)
		return nil
	}
	a.forwards.add(forward{path: pathCallback, body: xxl.Callbacks(unknown), header: r.Header.Get(xxl.HeaderGroup)})
	return nil
}

// pathOfRequest returns the path after the root, with single slashes: Go executors send two if the
// admin's address ends in a slash.
func pathOfRequest(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if rest, ok := strings.CutPrefix(path, oldRoot+"/"); ok {
		path = "/" + rest
	}
	return path
}

// isLocal reports whether a caller is on this machine.
func isLocal(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// tokenHash makes tokens as long as each other, so that they can be compared in constant time.
type tokenHash [sha256.Size]byte

func hashOf(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// isToken reports whether executors of all groups may use a token. It takes the same time for every
// token.
func (s *settings) isToken(token string) bool {
	given, found := hashOf(token), 0
	for i := range s.hashes {
		found |= subtle.ConstantTimeCompare(given[:], s.hashes[i][:])
	}
	return found == 1
}

const (
	// failuresMax bounds the separately counted addresses; further ones count as one.
	failuresMax = 1000
	// failuresEvery is how often the log names an address again.
	failuresEvery = time.Minute
)

// failures counts requests with a wrong token, by address.
type failures struct {
	mu   sync.Mutex
	byIP map[string]*failure
}

type failure struct {
	count   int
	lastLog time.Time
}

func (f *failures) add(remote string, log *slog.Logger) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	f.mu.Lock()
	one := f.byIP[host]
	if one == nil && len(f.byIP) >= failuresMax {
		host = "others"
		one = f.byIP[host]
	}
	if one == nil {
		if f.byIP == nil {
			f.byIP = map[string]*failure{}
		}
		one = &failure{}
		f.byIP[host] = one
	}
	one.count++
	count, say := one.count, time.Since(one.lastLog) >= failuresEvery
	if say {
		one.lastLog = time.Now()
	}
	f.mu.Unlock()
	if say {
		log.Warn("an executor has shown a wrong access token", "caller", host, "times", count)
	}
}
