// Package provider is an OpenID provider for tests: discovery, keys, authorization with PKCE,
// tokens and what is said of people. It signs in the last given person, and makes mistakes at a
// test's request.
package provider

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Client is the client of a [Provider], and [Secret] its secret.
const (
	Client = "belfry"
	Secret = "of belfry"
)

// Provider is a provider on a port of this machine.
type Provider struct {
	*httptest.Server

	mu     sync.Mutex
	now    func() time.Time
	key    *rsa.PrivateKey
	keyID  string
	person map[string]any
	more   map[string]any // user information outside the token
	wrong  func(header, claims map[string]any)
	denied string
	down   bool
	codes  map[string]grant
	tokens map[string]map[string]any
	asked  int
}

// grant is the data of a code.
type grant struct {
	redirect, challenge, nonce string
	person, more               map[string]any
}

// New starts a provider.
func New(now func() time.Time) *Provider {
	p := &Provider{now: now, codes: map[string]grant{}, tokens: map[string]map[string]any{}}
	p.RotateKey()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /userinfo", p.userinfo)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked++
		down := p.down
		p.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return p
}

// RotateKey makes the provider sign with another key, and forget the old one.
func (p *Provider) RotateKey() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // there is no randomness
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.keyID = key, rand.Text()
}

// SignIn sets who signs in next: claims are in the token, and more is outside of it.
func (p *Provider) SignIn(claims, more map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person, p.more, p.denied = claims, more, ""
}

// Deny makes the provider refuse the next sign-in.
func (p *Provider) Deny(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = code
}

// Mistake changes the header and claims of later tokens; nil stops that.
func (p *Provider) Mistake(wrong func(header, claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = wrong
}

// SetDown makes the provider answer nothing.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// Asked returns the number of requests.
func (p *Provider) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"userinfo_endpoint": p.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "code_challenge_methods_supported": []string{"S256"},
	})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	encode := base64.RawURLEncoding.EncodeToString
	answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": p.keyID, "n": encode(p.key.N.Bytes()), "e": encode(big.NewInt(int64(p.key.E)).Bytes()),
	}}})
}

// authorize signs the person in at once, and redirects the browser back.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != Client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || !strings.Contains(q.Get("scope"), "openid") {
		http.Error(w, "a client that is not known, or no flow of this provider", http.StatusBadRequest)
		return
	}
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	query := url.Values{"state": {q.Get("state")}, "iss": {p.URL}}
	if p.denied != "" {
		query.Set("error", p.denied)
	} else {
		code := rand.Text()
		p.codes[code] = grant{q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("nonce"), p.person, p.more}
		query.Set("code", code)
	}
	back.RawQuery = query.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token returns tokens for a code, once, to the client with the verifier.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) { answer(w, http.StatusBadRequest, map[string]any{"error": code}) }
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if id, _ = url.QueryUnescape(id); id != Client {
		refuse("invalid_client")
		return
	}
	if secret, _ = url.QueryUnescape(secret); secret != Secret {
		refuse("invalid_client")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.PostFormValue("code")
	g, known := p.codes[code]
	delete(p.codes, code)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || r.PostFormValue("redirect_uri") != g.redirect || base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge {
		refuse("invalid_grant")
		return
	}
	now := p.now()
	header := map[string]any{"alg": "RS256", "typ": "JWT", "kid": p.keyID}
	claims := map[string]any{"iss": p.URL, "aud": Client, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "nonce": g.nonce}
	for name, value := range g.person {
		claims[name] = value
	}
	access := rand.Text()
	info := map[string]any{"sub": claims["sub"]}
	for name, value := range g.more {
		info[name] = value
	}
	p.tokens[access] = info
	if p.wrong != nil {
		p.wrong(header, claims)
	}
	signed, err := p.sign(header, claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "id_token": signed})
}

// sign writes a token. One without a signature is a mistake that must be noticed.
func (p *Provider) sign(header, claims map[string]any) (string, error) {
	var parts []string
	for _, part := range []map[string]any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(text))
	}
	text := strings.Join(parts, ".")
	if header["alg"] == "none" {
		return text + ".", nil
	}
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info, known := p.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !known {
		http.Error(w, "no such token", http.StatusUnauthorized)
		return
	}
	answer(w, http.StatusOK, info)
}

func answer(w http.ResponseWriter, status int, value map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}
