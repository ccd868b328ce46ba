package service

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Hooks starts jobs for programs that sign their requests.
type Hooks struct {
	*KindDocuments
	runs    *Runs
	secrets *secret.Keeper
	notes   interface {
		PutAudited(ctx context.Context, n store.AuditedNote) error
	}
	calls [len(hookResults)]atomic.Int64
}

// hookResults are the results of calls of hooks, for metrics.
var hookResults = [...]string{"started", "repeated", "ignored", "refused", "unproven"}

const (
	hookStarted = iota
	hookRepeated
	hookIgnored
	hookRefused
	hookUnproven
)

// Counts returns how many calls this server has had, by result.
func (s *Hooks) Counts() map[string]int64 {
	counts := make(map[string]int64, len(hookResults))
	for i, result := range hookResults {
		counts[result] = s.calls[i].Load()
	}
	return counts
}

// HookActor begins the names of hooks in the audit.
const HookActor = "hook:"

// HookCall is a request to a hook.
type HookCall struct {
	ID     string // in the address
	Secret string // at the end of the address, "" for none
	From   netip.Addr
	Header http.Header
	Body   []byte
}

// Call starts the job of a hook. A call that proves nothing gets the same error whether there is
// such a hook or not, after the same work.
func (s *Hooks) Call(ctx context.Context, c HookCall) (client.HookCalled, error) {
	h, delivery, err := s.proven(ctx, &c)
	if err != nil {
		var refused *Error
		if errors.As(err, &refused) {
			s.calls[hookUnproven].Add(1)
		}
		return client.HookCalled{}, err
	}
	called, err := s.take(ctx, h, &c, delivery)
	result, verb, why := hookStarted, "", reason.Say(called.because)
	switch {
	case err != nil:
		e := ErrorOf(err)
		result, verb, why = hookRefused, ".refuse", e.Detail
		if len(e.Errors) > 0 {
			why = job.Text(e.Errors[0].Path + " " + e.Errors[0].Detail)
		}
		if !h.Takes(c.From) { // the caller is not told that its proof is right
			why = reason.Say(phrase.HookFromElsewhere.Of(c.From.String()))
		}
	case called.Run == job.ID{}:
		result, verb = hookIgnored, ".ignore"
	case called.Repeated:
		result, verb, why = hookRepeated, ".repeat", job.Text(called.Run.String())
	}
	s.calls[result].Add(1)
	if verb == "" { // the start is in the audit
		return called.HookCalled, nil
	}
	record := store.AuditRecord{Actor: HookActor + h.FullName(), Action: string(job.KindHook) + verb, Object: h.FullName(), Version: h.Version, Detail: why}
	// The note does not exist: only its record is written.
	note := store.Note{Name: "hook/" + h.UID.String()}
	return called.HookCalled, errors.Join(err, s.notes.PutAudited(ctx, store.AuditedNote{Note: note, Audit: record}))
}

// called is the result of a call, and why it started nothing.
type called struct {
	client.HookCalled
	because phrase.Text
}

// take starts the job for a proven call.
func (s *Hooks) take(ctx context.Context, h *job.Hook, c *HookCall, delivery string) (done called, err error) {
	if !h.Takes(c.From) {
		return done, Refuse(client.TypeUnauthenticated, phrase.HookUnproven)
	}
	if h.Paused {
		return called{because: phrase.HookPaused}, nil
	}
	call, err := c.forTemplates()
	if err != nil {
		return done, err
	}
	passes, params, field, err := h.Read(call)
	switch {
	case err != nil:
		return done, WrongField(field, phrase.HookTemplate.Of(phrase.Words(err.Error())))
	case !passes:
		return called{because: phrase.HookIgnored}, nil
	}
	key := ""
	if delivery != "" {
		key = fmt.Sprintf("hook %x", sha256.Sum256([]byte(h.UID.String()+" "+delivery)))
	}
	who := Caller{Name: HookActor + h.FullName(), Role: store.RoleRunner, Namespace: h.Namespace}
	made, err := s.runs.Start(ctx, who, Name{h.Namespace, h.Job}, client.RunRequest{Params: params}, key)
	return called{HookCalled: client.HookCalled{Run: made.Run.ID, Repeated: !made.New}}, err
}

// proven returns the hook of a call that knows its secret, and what identifies the delivery, "" for
// nothing.
func (s *Hooks) proven(ctx context.Context, c *HookCall) (*job.Hook, string, error) {
	unproven := Refuse(client.TypeUnauthenticated, phrase.HookUnproven)
	all, err := s.store.Documents(ctx, job.KindHook)
	if err != nil {
		return nil, "", err
	}
	var h *job.Hook
	known := false
	for _, d := range all {
		if h == nil || subtle.ConstantTimeCompare([]byte(d.Hook.UID.String()), []byte(c.ID)) == 1 {
			// The secret of the first stands in for that of an unknown hook.
			h, known = d.Hook, d.Hook.UID.String() == c.ID
		}
	}
	if h == nil {
		return nil, "", unproven
	}
	value, err := s.secrets.Value(ctx, h.Namespace, h.Secret)
	switch {
	case errors.Is(err, store.ErrAway), ctx.Err() != nil:
		return nil, "", err
	case err != nil:
		s.log.Warn("a hook cannot read its secret", "hook", h.FullName(), "error", err)
		return nil, "", unproven
	}
	delivery, ok := c.prove(h.From, value, s.now())
	if !ok || !known {
		return nil, "", unproven
	}
	return h, delivery, nil
}

// hookTolerance is how far the time of a signed call may be from the server's, as the providers
// recommend.
const hookTolerance = 5 * time.Minute

// prove reports whether a call knows a secret, and what identifies the delivery: something signed
// where the form signs it.
func (c *HookCall) prove(form job.HookForm, secret string, now time.Time) (delivery string, ok bool) {
	switch form {
	case job.HookGitHub:
		digest, isHex := strings.CutPrefix(c.Header.Get("X-Hub-Signature-256"), "sha256=")
		// The delivery's id is not signed, so that the body stands for itself.
		body := sha256.Sum256(c.Body)
		return hex.EncodeToString(body[:]), isHex && isDigest(digest, hex.DecodeString, sign([]byte(secret), c.Body))
	case job.HookGitLab:
		return c.Header.Get("Idempotency-Key"), isSame(c.Header.Get("X-Gitlab-Token"), secret)
	case job.HookURL:
		return c.Header.Get("Idempotency-Key"), isSame(c.Secret, secret)
	case job.HookStripe:
		var at string
		var digests []string
		for field := range strings.SplitSeq(c.Header.Get("Stripe-Signature"), ",") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(field), "="); name {
			case "t":
				at = value
			case "v1":
				digests = append(digests, value)
			}
		}
		wanted := sign([]byte(secret), []byte(at+"."), c.Body)
		for _, digest := range digests[:min(len(digests), signaturesMax)] {
			ok = isDigest(digest, hex.DecodeString, wanted) || ok
		}
		var event struct{ ID string }
		_ = json.Unmarshal(c.Body, &event) // without an id the body stands for itself
		if event.ID == "" {
			event.ID = hex.EncodeToString(wanted)
		}
		return event.ID, ok && isRecent(at, now)
	case job.HookStandard:
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		id, at := c.Header.Get("Webhook-Id"), c.Header.Get("Webhook-Timestamp")
		wanted := sign(key, []byte(id+"."+at+"."), c.Body)
		signatures := strings.Fields(c.Header.Get("Webhook-Signature"))
		for _, signature := range signatures[:min(len(signatures), signaturesMax)] {
			digest, isFirst := strings.CutPrefix(signature, "v1,")
			ok = isFirst && isDigest(digest, base64.StdEncoding.DecodeString, wanted) || ok
		}
		return id, ok && err == nil && len(key) > 0 && id != "" && isRecent(at, now)
	}
	return "", false
}

// signaturesMax bounds the signatures of a call: a sender has two while its key changes.
const signaturesMax = 10

func sign(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

func isDigest(text string, decode func(string) ([]byte, error), wanted []byte) bool {
	given, err := decode(text)
	return err == nil && hmac.Equal(given, wanted)
}

// isSame compares secrets in a time that says nothing about their lengths.
func isSame(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// isRecent reports whether a time in seconds is near now.
func isRecent(text string, now time.Time) bool {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= hookTolerance
}

// forTemplates returns what templates know of a call: a form as an object, and text as a string.
func (c *HookCall) forTemplates() (call job.Call, err error) {
	header := make(map[string]string, len(c.Header))
	for name, values := range c.Header {
		header[strings.ReplaceAll(strings.ToLower(name), "-", "_")] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	for _, secret := range []string{"x_gitlab_token", "authorization", "cookie"} {
		delete(header, secret)
	}
	if call.Header, err = json.Marshal(header); err != nil {
		return call, err
	}
	kind, _, _ := strings.Cut(c.Header.Get("Content-Type"), ";")
	switch body := string(c.Body); {
	case !utf8.ValidString(body):
		return call, WrongField("body", phrase.NotUTF8)
	case json.Valid(c.Body):
		call.Body = c.Body
	case strings.HasSuffix(kind, "json"):
		return call, WrongField("body", phrase.ValueNotJSON)
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(body)
		if err != nil {
			return call, WrongField("body", phrase.OfError(err))
		}
		fields := make(map[string]string, len(form))
		for name := range form {
			fields[name] = form.Get(name)
		}
		call.Body, err = json.Marshal(fields)
		return call, err
	default:
		call.Body, err = json.Marshal(body)
	}
	return call, err
}
