package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

const (
	// sendMax bounds one try.
	sendMax = 30 * time.Second
	// dialMax bounds connecting.
	dialMax = 10 * time.Second
	// answerMax is how much of an answer is read: services answer with some words.
	answerMax = 64 << 10
	// shownMax is how much of an answer is shown.
	shownMax = 200
)

// SenderConfig configures a [Sender].
type SenderConfig struct {
	// Secrets reads the secrets that channels name.
	Secrets *secret.Keeper
	// Control refuses connections to closed addresses: see [net.Dialer].
	Control func(network, address string, c syscall.RawConn) error
	// Version is the version of the program.
	Version string
	// Now is the clock of the machine. Default: [time.Now].
	Now func() time.Time
	// Proxy returns the proxy of a request, nil for none. Default: none.
	Proxy func(*http.Request) (*url.URL, error)
}

// Sender delivers messages to services. Its methods may be called from any goroutine.
type Sender struct {
	config SenderConfig
	dialer *net.Dialer
	client *http.Client
	// mailTLS trusts the servers for mail; nil is the certificates of the system.
	mailTLS func(host string) tlsConfig
}

// services has what delivers to each service.
var services = map[string]func(*Sender, context.Context, *job.Channel, *notification.Message) error{
	"webhook": (*Sender).webhook, "mail": (*Sender).mail, "slack": (*Sender).slack, "teams": (*Sender).teams,
	"discord": (*Sender).discord, "telegram": (*Sender).telegram, "pagerduty": (*Sender).pagerDuty,
	"opsgenie": (*Sender).opsgenie, "alertmanager": (*Sender).alertmanager, "dingtalk": (*Sender).dingTalk, "feishu": (*Sender).feishu, "wecom": (*Sender).weCom,
}

// NewSender returns a sender.
func NewSender(c SenderConfig) *Sender {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Sender{config: c, dialer: &net.Dialer{Timeout: dialMax, Control: c.Control}}
	s.client = &http.Client{
		Transport: &http.Transport{
			DialContext: s.dialer.DialContext, Proxy: c.Proxy, TLSHandshakeTimeout: dialMax, ForceAttemptHTTP2: true,
			MaxIdleConns: 16, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
		},
		// A redirect would send the secret in the address, and the message, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Close closes connections that are not used.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send delivers a message to the service of a channel. Its error is a *notification.Failure
// without secrets.
func (s *Sender) Send(ctx context.Context, c *job.Channel, m *notification.Message) error {
	send := services[c.To.Kind()]
	if send == nil {
		return refused(phrase.NoService)
	}
	ctx, cancel := context.WithTimeout(ctx, sendMax)
	defer cancel()
	err := send(s, ctx, c, m)
	var failure *notification.Failure
	if err == nil || errors.As(err, &failure) {
		return err
	}
	return &notification.Failure{Err: err, Unsure: true}
}

// refused is a failure for which a retry is no help.
func refused(why phrase.Text, hint ...phrase.Text) *notification.Failure {
	return &notification.Failure{Err: phrase.Mistake(why, hint...), Refused: true}
}

// secret reads a secret of a channel.
func (s *Sender) secret(ctx context.Context, c *job.Channel, ref *job.Secret) (text string, err error) {
	if ref == nil {
		return "", nil
	}
	namespace := c.WithDefaults().Namespace
	switch {
	case ref.Name != "":
		if text, err = s.config.Secrets.Value(ctx, namespace, ref.Name); err != nil && !errors.As(err, new(*secret.Missing)) {
			return "", &notification.Failure{Err: err} // it may be readable next time
		}
	case ref.Env != "":
		text, err = s.config.Secrets.Variable(namespace, ref.Env)
	default:
		if text, err = s.config.Secrets.Files.Read(namespace, ref.File); err != nil {
			err = phrase.Mistake(phrase.SecretUnread.Of(ref.File, namespace, phrase.Words(err.Error())))
		}
	}
	if err != nil {
		return "", &notification.Failure{Err: err, Refused: true}
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", refused(phrase.SecretEmpty)
	}
	return text, nil
}

// request is a POST of JSON.
type request struct {
	url    string
	header map[string]string
	body   any // []byte is sent unchanged
	// judge interprets an answer with a status of success. Default: delivered.
	judge func(body []byte) error
}

// post makes a request, and interprets the answer.
func (s *Sender) post(ctx context.Context, r request) error {
	body, ok := r.body.([]byte)
	if !ok {
		var err error
		if body, err = marshal(r.body); err != nil {
			return refused(phrase.MessageFaulty.Of(phrase.Words(err.Error())))
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return refused(phrase.NotWebServer) // the error would show it
	}
	if req.URL.Scheme != "https" && req.URL.Scheme != "http" || req.URL.Host == "" {
		return refused(phrase.NotWebServer, phrase.BeginsHTTPS)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "belfry/"+s.config.Version)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	response, err := s.client.Do(req)
	if err != nil {
		return unreached(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return unreached(err)
	}
	switch status := response.StatusCode; {
	case status >= 200 && status < 300:
		if r.judge == nil {
			return nil
		}
		return r.judge(text)
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		return &notification.Failure{Err: statusError(status, text), After: cmp.Or(s.retryAfter(response), saidWait(text))}
	default:
		var busy *notification.Failure // some say in the body of a refusal that they are only busy
		if r.judge != nil && errors.As(r.judge(text), &busy) && !busy.Refused && !busy.Unsure {
			return busy
		}
		return &notification.Failure{Err: statusError(status, text), Refused: true}
	}
}

// marshal encodes JSON without HTML escapes, which some services would show.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func statusError(status int, body []byte) error {
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "?")), " ")
	if strings.HasPrefix(words, "<") { // a page
		words = ""
	}
	return phrase.Mistake(phrase.AnswersStatus.Of(status, phrase.Words(words[:min(len(words), shownMax)])))
}

// unreached explains why a service could not be reached, without its address.
func unreached(err error) error {
	var at *url.Error
	for errors.As(err, &at) {
		err = at.Err
	}
	var dial *net.OpError
	unsure := !errors.As(err, &dial) || dial.Op != "dial"
	return &notification.Failure{Err: phrase.Mistake(phrase.ServiceAway.Of(phrase.Words(err.Error()))), Unsure: unsure}
}

// retryAfter returns the requested pause of a service.
func (s *Sender) retryAfter(r *http.Response) time.Duration {
	text := r.Header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && seconds < retryAfterMax {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(s.config.Now()))
	}
	return 0
}

// saidWait returns the pause that Discord or Telegram requests in the body of an answer.
func saidWait(body []byte) time.Duration {
	var answer struct {
		RetryAfter float64 `json:"retry_after"`
		Parameters struct {
			RetryAfter float64 `json:"retry_after"`
		} `json:"parameters"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0
	}
	seconds := max(answer.RetryAfter, answer.Parameters.RetryAfter)
	if seconds <= 0 || seconds >= retryAfterMax {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// retryAfterMax bounds the seconds of Retry-After: a longer value is a mistake.
const retryAfterMax = 1e6

// coded is the answer of services that report errors by number.
func coded(field string, busy map[int]time.Duration) func([]byte) error {
	return func(body []byte) error {
		var answer map[string]any
		if err := json.Unmarshal(body, &answer); err != nil {
			return &notification.Failure{Err: statusError(http.StatusOK, body), Unsure: true}
		}
		number, ok := answer[field].(float64)
		if !ok || number == 0 {
			return nil
		}
		f := &notification.Failure{Err: statusError(int(number), body), Refused: true}
		if after, found := busy[int(number)]; found {
			f.Refused, f.After = false, after
		}
		return f
	}
}
