package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

type tlsConfig = *tls.Config

// mailMax is how many bytes the text of a mail has at most.
const mailMax = 64 << 10

// mail delivers by SMTP.
func (s *Sender) mail(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Mail
	password, err := s.secret(ctx, c, to.Password)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(to.Server)
	if err != nil {
		return refused(phrase.NotMailServer.Of(phrase.Words(err.Error())))
	}
	text, err := mailText(to, m)
	if err != nil {
		return refused(phrase.MailUnwritten.Of(phrase.Words(err.Error())))
	}
	plain, err := s.dialer.DialContext(ctx, "tcp", to.Server)
	if err != nil {
		return &notification.Failure{Err: phrase.Mistake(phrase.MailAway.Of(phrase.Words(err.Error())))}
	}
	defer plain.Close()
	defer context.AfterFunc(ctx, func() { plain.Close() })()
	encrypt := to.TLS
	if encrypt == "" {
		if encrypt = job.MailStartTLS; port == "465" {
			encrypt = job.MailImplicit
		}
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.mailTLS != nil {
		config = s.mailTLS(host)
	}
	conn := plain
	if encrypt == job.MailImplicit {
		conn = tls.Client(plain, config)
	}
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return mailFailure(err, false)
	}
	defer client.Close()
	if encrypt == job.MailStartTLS {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return refused(phrase.WithoutSTARTTLS)
		}
		if err := client.StartTLS(config); err != nil {
			return mailFailure(err, false)
		}
	}
	if to.Username != "" {
		if err := client.Auth(mailAuth(client, host, to.Username, password)); err != nil {
			return mailFailure(err, false)
		}
	}
	return deliver(client, to, text)
}

// deliver sends a mail to the server. A refused receiver does not affect others; the refusal is
// reported if no receiver is accepted.
func deliver(client *smtp.Client, to *job.MailService, text []byte) error {
	if err := client.Mail(to.From); err != nil {
		return mailFailure(err, false)
	}
	var first error
	accepted := 0
	for _, address := range to.To {
		if err := client.Rcpt(address); err == nil {
			accepted++
		} else if first == nil || !mailFailure(err, false).Refused {
			first = err
		}
	}
	if accepted == 0 || first != nil && !mailFailure(first, false).Refused {
		return mailFailure(first, false)
	}
	w, err := client.Data()
	if err != nil {
		return mailFailure(err, false)
	}
	if _, err := w.Write(text); err != nil {
		return mailFailure(err, true)
	}
	if err := w.Close(); err != nil {
		return mailFailure(err, true)
	}
	_ = client.Quit() // the server already has the mail
	return nil
}

// mailFailure classifies an error of a mail server.
func mailFailure(err error, sent bool) *notification.Failure {
	f := &notification.Failure{Err: phrase.Mistake(phrase.MailServerSays.Of(phrase.Words(err.Error()))), Unsure: sent}
	var smtpErr *textproto.Error
	if errors.As(err, &smtpErr) {
		f.Unsure, f.Refused = false, smtpErr.Code >= 500
	}
	var certificate *tls.CertificateVerificationError
	f.Refused = f.Refused || errors.As(err, &certificate)
	return f
}

// mailText writes a mail.
func mailText(to *job.MailService, m *notification.Message) ([]byte, error) {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	_, domain, _ := strings.Cut(to.From, "@")
	header("From", to.From)
	header("To", strings.Join(to.To, ",\r\n "))
	header("Subject", mime.QEncoding.Encode("utf-8", "[belfry] "+oneLine(m.Title)))
	header("Date", m.Time.In(m.Zone()).Format(time.RFC1123Z))
	header("Message-ID", "<"+m.ID+"@"+domain+">")
	header("References", "<"+m.Key+"@"+domain+">") // one thread per group
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	plain := m.Title + "\n\n" + m.Body(mailMax) + "\n"
	if to.Plain {
		header("Content-Type", "text/plain; charset=utf-8")
		header("Content-Transfer-Encoding", "quoted-printable")
		b.WriteString("\r\n")
		return b.Bytes(), errors.Join(quoted(&b, plain))
	}
	parts := multipart.NewWriter(&b)
	header("Content-Type", "multipart/alternative; boundary="+parts.Boundary())
	b.WriteString("\r\n")
	for _, part := range []struct{ kind, text string }{{"plain", plain}, {"html", mailHTML(m)}} {
		w, err := parts.CreatePart(textproto.MIMEHeader{
			"Content-Type": {"text/" + part.kind + "; charset=utf-8"}, "Content-Transfer-Encoding": {"quoted-printable"},
		})
		if err != nil {
			return nil, err
		}
		if err := quoted(w, part.text); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), parts.Close()
}

func quoted(w interface{ Write([]byte) (int, error) }, text string) error {
	q := quotedprintable.NewWriter(w)
	if _, err := q.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))); err != nil {
		return err
	}
	return q.Close()
}

// colours of the severities, readable on white.
var colours = map[notification.Severity]string{notification.Bad: "#b42318", notification.Warning: "#92610a", notification.Good: "#146c43"}

func mailHTML(m *notification.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html><html><body style=\"font-family:sans-serif\"><h2 style=\"color:%s\">%s</h2><ul>", colours[m.Severity], html.EscapeString(m.Title))
	for i := range m.Lines {
		l := &m.Lines[i]
		text := html.EscapeString(l.Text(m.Zone()))
		if l.Link != "" {
			text = fmt.Sprintf("<a href=\"%s\">%s</a>", html.EscapeString(l.Link), text)
		}
		if details := l.Details(m.Zone()); details != "" {
			text += "<br>" + html.EscapeString(details)
		}
		if len(l.Output) > 0 {
			text += "<pre>" + html.EscapeString(strings.Join(l.Output, "\n")) + "</pre>"
		}
		if b.Len()+len(text) > mailMax {
			fmt.Fprintf(&b, "<li>… and %d more</li>", len(m.Lines)-i)
			break
		}
		fmt.Fprintf(&b, "<li>%s</li>", text)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "<li>… and %d more</li>", m.More)
	}
	fmt.Fprintf(&b, "</ul><p style=\"color:#666\">%s</p></body></html>", html.EscapeString("Belfry, channel "+m.Channel))
	return b.String()
}

// oneLine removes line breaks, which would end a header.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// mailAuth returns the user's authentication: PLAIN, or LOGIN if the server offers nothing
// else.
func mailAuth(client *smtp.Client, host, user, password string) smtp.Auth {
	_, offered := client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	if !slices.Contains(mechanisms, "PLAIN") && slices.Contains(mechanisms, "LOGIN") {
		return &loginAuth{user, password}
	}
	return smtp.PlainAuth("", user, password, host)
}

// loginAuth is the mechanism LOGIN, which the standard library lacks.
type loginAuth struct{ user, password string }

func (a *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS {
		return "", nil, errors.New("the connection is not encrypted")
	}
	return "LOGIN", nil, nil
}

func (a *loginAuth) Next(question []byte, more bool) ([]byte, error) {
	switch asked := strings.ToLower(string(question)); {
	case !more:
		return nil, nil
	case strings.HasPrefix(asked, "user"):
		return []byte(a.user), nil
	case strings.HasPrefix(asked, "pass"):
		return []byte(a.password), nil
	}
	return nil, errors.New("the server asks for something other than user and password")
}
