package crontab

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// mailLabel is the label of jobs whose failures are mailed, with the name of the channel.
const mailLabel = "mailto"

// mail lets failures of a job reach the addresses of MAILTO, by a channel that the first job of the
// addresses brings.
func (r *reader) mail(to string, j *job.Job, line *Line) {
	if to == "" {
		return
	}
	if r.MailServer == "" {
		if to != r.mailed {
			r.mailed = to
			line.note(phrase.NotMailed.Of(to))
		}
		return
	}
	c := r.channels[to]
	if c == nil {
		c = r.channel(to)
		if r.channels == nil {
			r.channels = map[string]*job.Channel{}
		}
		r.channels[to] = c
		line.Documents = append(line.Documents, job.Document{Kind: job.KindChannel, Channel: c})
		line.note(phrase.FailuresMailed.Of(c.To.Mail.To))
	}
	j.Labels = map[string]string{mailLabel: c.Name}
}

// channel returns the channel for addresses, which commas separate. A user of the machine has its
// mail there.
func (r *reader) channel(to string) *job.Channel {
	mail := &job.MailService{Server: r.MailServer, From: r.MailFrom}
	_, domain, _ := strings.Cut(r.MailFrom, "@")
	for address := range strings.FieldsFuncSeq(to, func(c rune) bool { return c == ',' || c == ' ' }) {
		if !strings.Contains(address, "@") {
			address += "@" + domain
		}
		mail.To = append(mail.To, address)
	}
	if isLocal(r.MailServer) {
		mail.TLS = job.MailNoTLS // it has no certificate for this name
	}
	name := slug("mailto-" + to)
	if strings.ContainsFunc(to, func(c rune) bool { return c > unicode.MaxASCII }) { // slugs leave these out
		sum := sha256.Sum256([]byte(to))
		name += "-" + hex.EncodeToString(sum[:hashLen])
	}
	return &job.Channel{
		Name: name, Description: "MAILTO=" + to + " of a crontab", To: job.Service{Mail: mail},
		Rules: []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed, job.NoticeRecovered, job.NoticeMissed}, Labels: map[string]string{mailLabel: name}}},
	}
}

func isLocal(server string) bool {
	return strings.HasPrefix(server, "localhost:") || strings.HasPrefix(server, "[::1]:") || strings.HasPrefix(server, "127.")
}
