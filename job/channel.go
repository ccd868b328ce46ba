package job

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
)

// Channel is a destination for notifications, with rules that select them.
type Channel struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the channel. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name of the channel in its namespace."`
	Description string            `json:"description,omitzero" max:"4096" doc:"What the channel is for, for people."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Free marks to find and group channels by."`
	To          Service           `json:"to" doc:"Where notifications go: exactly one service."`
	Rules       []ChannelRule     `json:"rules" items:"50" doc:"What is sent. An event that matches one of the rules is sent once."`
	Group       Grouping          `json:"group,omitzero" doc:"Which events share a message, and how often messages come."`
	Repeat      Duration          `json:"repeat,omitzero" min:"1m" max:"30d" doc:"How often a message is repeated while its problem lasts and is not acknowledged. Default: never."`
	Limit       MessageLimit      `json:"limit,omitzero" doc:"How many messages are sent at most. What is beyond the limit waits and is sent together."`
	Quiet       []QuietHours      `json:"quiet,omitzero" items:"20" doc:"Hours in which messages wait."`
	Zone        string            `json:"zone,omitzero" max:"64" doc:"The time zone of quiet hours and of times in messages. Default: UTC."`
	OutputLines *int              `json:"output_lines,omitzero" min:"0" max:"100" doc:"How many of the last lines of the output of a failed run a message has; 0 is none. Default: 20."`
	Link        string            `json:"link,omitzero" max:"1024" doc:"The address of the web UI, for links in messages: https://belfry.example.org. Default: no links."`
	Paused      bool              `json:"paused,omitzero" doc:"Nothing is sent, and events are not kept for later."`
	UID         ID                `json:"uid,omitzero" doc:"Read-only. The identity of the channel."`
	Version     int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the channel increments it."`
	Source      *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the channel is of."`
}

// FullName returns "namespace/name".
func (c *Channel) FullName() string { return fullName(c.Namespace, c.Name) }

// Service is the receiver of notifications: exactly one of its fields is set.
type Service struct {
	Webhook      *WebhookService      `json:"webhook,omitzero" doc:"A POST of JSON, signed as Standard Webhooks."`
	Mail         *MailService         `json:"mail,omitzero" doc:"Mail by SMTP."`
	Slack        *SlackService        `json:"slack,omitzero" doc:"Slack, by an incoming webhook or a bot."`
	Teams        *AddressService      `json:"teams,omitzero" doc:"Microsoft Teams, by the webhook of a workflow."`
	Discord      *AddressService      `json:"discord,omitzero" doc:"Discord, by a webhook."`
	Telegram     *TelegramService     `json:"telegram,omitzero" doc:"Telegram, by a bot."`
	PagerDuty    *PagerDutyService    `json:"pagerduty,omitzero" doc:"PagerDuty, by its Events API 2. Incidents are resolved when the problem is over."`
	Opsgenie     *OpsgenieService     `json:"opsgenie,omitzero" doc:"Opsgenie, by its alert API. Alerts are closed when the problem is over."`
	Alertmanager *AlertmanagerService `json:"alertmanager,omitzero" doc:"Prometheus Alertmanager, by its API v2. Alerts are resolved when the problem is over."`
	DingTalk     *SignedService       `json:"dingtalk,omitzero" doc:"DingTalk, by the webhook of a robot."`
	Feishu       *SignedService       `json:"feishu,omitzero" doc:"Feishu or Lark, by the webhook of a bot."`
	WeCom        *AddressService      `json:"wecom,omitzero" doc:"WeCom, by the webhook of a group robot."`
}

// Secret names a secret of the servers. Documents never contain the secret.
type Secret struct {
	Name string `json:"name,omitzero" max:"64" doc:"The name of a secret in the namespace of the channel, as belfry secret set has made it."`
	File string `json:"file,omitzero" max:"128" doc:"The name of a file in the directory of the channel's namespace in notify.secrets of the servers."`
	Env  string `json:"env,omitzero" max:"128" doc:"The end of the name of a variable of the servers: with TOKEN in the namespace web-shop it is BELFRY_SECRET_WEB_SHOP__TOKEN."`
}

// Secrets returns the secrets of a channel's service.
func (c *Channel) Secrets() (list []Secret) {
	services := reflect.ValueOf(c.To)
	for i := range services.NumField() {
		if services.Field(i).IsNil() {
			continue
		}
		service := services.Field(i).Elem()
		for k := range service.NumField() {
			switch s := service.Field(k).Interface().(type) {
			case Secret:
				list = append(list, s)
			case *Secret:
				if s != nil {
					list = append(list, *s)
				}
			}
		}
	}
	return list
}

// WebhookService is a receiver of Standard Webhooks.
type WebhookService struct {
	URL       string  `json:"url,omitzero" max:"2048" doc:"The address, with https or http. An address that is a secret is url_secret."`
	URLSecret *Secret `json:"url_secret,omitzero" doc:"The address, in place of url."`
	Secret    *Secret `json:"secret" doc:"The key of the signature: whsec_ and base64 of 24 to 64 bytes."`
}

// MailService is a server for mail and the addresses of a message.
type MailService struct {
	Server   string   `json:"server" max:"256" doc:"The server, host:port. Port 465 has TLS from the beginning."`
	From     string   `json:"from" max:"256" doc:"The address of the sender."`
	To       []string `json:"to" items:"100" max:"256" doc:"The addresses of the receivers."`
	Username string   `json:"username,omitzero" max:"256" doc:"The user at the server. Default: none."`
	Password *Secret  `json:"password,omitzero" doc:"The password of the user."`
	TLS      MailTLS  `json:"tls,omitzero" doc:"How the connection is encrypted. Default: implicit on port 465, else starttls."`
	Plain    bool     `json:"plain,omitzero" doc:"Send only plain text, without HTML."`
}

// MailTLS is the encryption of a connection for mail.
type MailTLS string

// The kinds of encryption of a connection for mail.
const (
	MailStartTLS MailTLS = "starttls" // after STARTTLS, which the server must offer
	MailImplicit MailTLS = "implicit" // from the beginning
	MailNoTLS    MailTLS = "none"     // no TLS, and no password
)

// Values returns all kinds of encryption.
func (MailTLS) Values() []string { return texts(MailStartTLS, MailImplicit, MailNoTLS) }

// SlackService is Slack, by an incoming webhook or by the token of a bot and a channel.
type SlackService struct {
	URL     *Secret `json:"url,omitzero" doc:"The address of an incoming webhook, which is a secret."`
	Token   *Secret `json:"token,omitzero" doc:"The token of a bot with chat:write, in place of url."`
	Channel string  `json:"channel,omitzero" max:"128" doc:"With token: the id of the channel or its name."`
	Server  string  `json:"server,omitzero" max:"1024" doc:"With token: the address of Slack. Default: https://slack.com."`
}

// AddressService is a service whose address is its secret.
type AddressService struct {
	URL Secret `json:"url" doc:"The address of the webhook, which is a secret."`
}

// SignedService is a service whose address is a secret, and which may require signed
// messages.
type SignedService struct {
	URL    Secret  `json:"url" doc:"The address of the webhook, which is a secret."`
	Secret *Secret `json:"secret,omitzero" doc:"The key of the signature, if the robot wants one."`
}

// TelegramService is a bot of Telegram and a chat.
type TelegramService struct {
	Token  Secret `json:"token" doc:"The token of the bot."`
	Chat   string `json:"chat" max:"128" doc:"The id of the chat, or @name of a channel."`
	Server string `json:"server,omitzero" max:"1024" doc:"The address of the Bot API. Default: https://api.telegram.org."`
}

// PagerDutyService is an integration of PagerDuty.
type PagerDutyService struct {
	Key    Secret `json:"key" doc:"The integration key (routing key)."`
	Server string `json:"server,omitzero" max:"1024" doc:"The address of the Events API. Default: https://events.pagerduty.com."`
}

// OpsgenieService is an integration of Opsgenie.
type OpsgenieService struct {
	Key    Secret `json:"key" doc:"The API key of the integration."`
	Server string `json:"server,omitzero" max:"1024" doc:"The address of the API; in the EU https://api.eu.opsgenie.com. Default: https://api.opsgenie.com."`
}

// AlertmanagerService is an Alertmanager of Prometheus, or all instances of a cluster.
type AlertmanagerService struct {
	URLs     []string          `json:"urls" items:"10" max:"1024" doc:"The addresses of all instances, such as http://alertmanager:9093: each gets every alert."`
	Labels   map[string]string `json:"labels,omitzero" items:"30" doc:"Further labels of the alerts, for the routes of Alertmanager."`
	Username string            `json:"username,omitzero" max:"256" doc:"The user of HTTP basic authentication. Default: none."`
	Password *Secret           `json:"password,omitzero" doc:"The password of the user."`
	Token    *Secret           `json:"token,omitzero" doc:"A bearer token, in place of username and password."`
}

// Notice is a kind of event that channels report.
type Notice string

// The kinds of events.
const (
	NoticeFailed    Notice = "failed"     // a run failed, timed out or was lost, and is not retried
	NoticeFailing   Notice = "failing"    // so did in_a_row consecutive runs of a job
	NoticeRecovered Notice = "recovered"  // the problem of an earlier message is over
	NoticeMissed    Notice = "missed"     // an occurrence did not run in time
	NoticeLate      Notice = "late"       // a run is due and does not start
	NoticeWaiting   Notice = "waiting"    // a run is due and no node may run it
	NoticeSlow      Notice = "slow"       // a run takes longer than usual
	NoticeUnmet     Notice = "unmet"      // an expectation of policy.expect is not met
	NoticePaused    Notice = "paused"     // Belfry has paused a job after failures
	NoticeApproval  Notice = "approval"   // a step of a flow waits for a person
	NoticeNodeLost  Notice = "node_lost"  // a node is silent
	NoticeSkipped   Notice = "skipped"    // in_a_row consecutive occurrences were skipped for an earlier run
	NoticeLateStart Notice = "late_start" // a run started late
	NoticeDisk      Notice = "disk"       // the disk of a node is nearly full
	NoticeHistory   Notice = "history_away"
	NoticeSource    Notice = "source" // the last commit of a followed repository has a mistake
)

// NoticeEnded is the end of a run that has a webhook of its own. No rule of a channel selects it.
const NoticeEnded Notice = "ended"

// Values returns all kinds of events.
func (Notice) Values() []string {
	return texts(NoticeFailed, NoticeFailing, NoticeRecovered, NoticeMissed, NoticeLate, NoticeWaiting, NoticeSlow, NoticeUnmet,
		NoticeSkipped, NoticeLateStart, NoticePaused, NoticeApproval, NoticeNodeLost, NoticeDisk, NoticeHistory, NoticeSource)
}

// OfServer reports whether the event is about a node or the server, and not about a job.
func (n Notice) OfServer() bool {
	return n == NoticeNodeLost || n == NoticeDisk || n == NoticeHistory || n == NoticeSource
}

// ChannelRule selects events. All set fields must match.
type ChannelRule struct {
	Events     []Notice          `json:"events" items:"20" doc:"The kinds of events: failed, failing, recovered, missed, late, waiting, slow, unmet, skipped, late_start, paused, approval, node_lost, disk, history_away or source."`
	Namespaces []string          `json:"namespaces,omitzero" items:"100" max:"128" doc:"The namespaces of the jobs; * is all. Only administrators of the whole server may name others. Default: that of the channel."`
	Jobs       []string          `json:"jobs,omitzero" items:"100" max:"128" doc:"The names of the jobs; * stands for any letters. Default: all."`
	Labels     map[string]string `json:"labels,omitzero" items:"64" doc:"The labels that a job must have, all of them."`
	InARow     int               `json:"in_a_row,omitzero" min:"2" max:"20" doc:"For failing and skipped: after how many runs that failed, or were skipped, in a row. Default: 3."`
	For        Duration          `json:"for,omitzero" min:"1s" max:"7d" doc:"For late, waiting, slow, approval, node_lost and disk: how long that must last. For late_start: how late the start must be. Default: as soon as it is seen."`
}

// Grouping is how events are combined to messages.
type Grouping struct {
	By    GroupBy  `json:"by,omitzero" doc:"What events of one message have in common: the job (default), the run, the namespace or only the channel."`
	Wait  Duration `json:"wait,omitzero" min:"1s" max:"1h" doc:"How long the first event waits for others. Default: 10s."`
	Every Duration `json:"every,omitzero" min:"1s" max:"7d" doc:"The shortest time between two messages of one group. Default: 5m."`
}

// GroupBy is the common property of the events of one message.
type GroupBy string

// The common properties of the events of one message.
const (
	GroupByJob       GroupBy = "job" // or the node
	GroupByRun       GroupBy = "run"
	GroupByNamespace GroupBy = "namespace"
	GroupByChannel   GroupBy = "channel"
)

// Values returns all groupings.
func (GroupBy) Values() []string {
	return texts(GroupByJob, GroupByRun, GroupByNamespace, GroupByChannel)
}

// MessageLimit is the most messages that a channel sends within a time.
type MessageLimit struct {
	Messages int      `json:"messages,omitzero" min:"1" max:"10000" doc:"How many messages. Default: 60."`
	Per      Duration `json:"per,omitzero" min:"1s" max:"1d" doc:"Within which time. Default: 1h."`
}

// QuietHours are hours of days during which messages wait.
type QuietHours struct {
	From   string   `json:"from" max:"5" doc:"The beginning, as 22:00."`
	To     string   `json:"to" max:"5" doc:"The end, as 07:00; before from, it is that of the next day, and equal to it, a whole day."`
	Days   []string `json:"days,omitzero" items:"7" max:"3" doc:"The weekdays on which they begin: mon, tue and so on. Default: all."`
	Except []Notice `json:"except,omitzero" items:"20" doc:"Events that are sent all the same."`
}

// The defaults of a channel.
const (
	GroupWaitDefault  = 10 * time.Second // events of one outage arrive within seconds
	GroupEveryDefault = 5 * time.Minute  // as often as a person can follow
	InARowDefault     = 3                // a single failure may be chance
	limitDefault      = 60
	limitPerDefault   = time.Hour
	outputDefault     = 20 // fits the screen of a phone
)

// WithDefaults returns the channel with all defaults filled in.
func (c *Channel) WithDefaults() *Channel {
	filled := *c
	filled.Namespace = namespaceOf(c.Namespace)
	fill(reflect.ValueOf(&filled.Group).Elem(), reflect.ValueOf(Grouping{GroupByJob, Duration(GroupWaitDefault), Duration(GroupEveryDefault)}))
	fill(reflect.ValueOf(&filled.Limit).Elem(), reflect.ValueOf(MessageLimit{limitDefault, Duration(limitPerDefault)}))
	if c.OutputLines == nil {
		filled.OutputLines = new(outputDefault)
	}
	filled.Rules = make([]ChannelRule, len(c.Rules))
	for i, r := range c.Rules {
		if len(r.Namespaces) == 0 {
			r.Namespaces = []string{filled.Namespace}
		}
		if r.InARow == 0 {
			r.InARow = InARowDefault
		}
		filled.Rules[i] = r
	}
	return &filled
}

// Foreign returns the part of the channel's rules that selects events of other
// namespaces, "" for none: only administrators of the whole server may define it.
func (c *Channel) Foreign() (path, what string) {
	own := namespaceOf(c.Namespace)
	for i, r := range c.Rules {
		at := root.field("rules").item(i)
		for n, namespace := range r.Namespaces {
			if namespace != own {
				return at.field("namespaces").item(n).String(), "the namespace " + namespace
			}
		}
		for n, event := range r.Events {
			if event.OfServer() {
				return at.field("events").item(n).String(), "the event " + string(event) + " of the whole server"
			}
		}
	}
	return "", ""
}

// Location returns the time zone of the channel.
func (c *Channel) Location() (*cron.Zone, error) {
	if c.Zone == "" {
		return cron.LoadZone("UTC")
	}
	return cron.LoadZone(c.Zone)
}

var (
	clockPattern  = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	secretEnv     = regexp.MustCompile(`^[A-Z0-9]+(_[A-Z0-9]+)*$`)
	globPattern   = regexp.MustCompile(`^[a-z0-9*][a-z0-9._*-]*$`)
	serverPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}$`)
	mailPattern   = regexp.MustCompile(`^[^\s@<>"(),:;\\]+@[^\s@<>"(),:;\\]+$`)
	// weekdays are the weekdays of quiet hours, in the order of [time.Weekday].
	weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// Weekday returns the day of a text in QuietHours.Days.
func Weekday(text string) (day time.Weekday, ok bool) {
	for i, name := range weekdays {
		if name == text {
			return time.Weekday(i), true
		}
	}
	return 0, false
}

// channel checks a channel.
func (v *validator) channel(c *Channel) {
	v.labels(c.Labels, root.field("labels"))
	v.service(c)
	v.refuse(len(c.Rules) == 0, root.field("rules"), phrase.Missing, phrase.Example.Of("[{events: [failed, recovered]}]"))
	for i := range c.Rules {
		v.channelRule(&c.Rules[i], root.field("rules").item(i))
	}
	for i := range c.Quiet {
		v.quietHours(&c.Quiet[i], root.field("quiet").item(i))
	}
	if _, err := c.Location(); err != nil {
		v.reportError(root.field("zone"), err)
	}
	v.address(c.Link, root.field("link"))
}

// address checks the address of a server, if it is set.
func (v *validator) address(text string, at *path) {
	v.refuse(text != "" && !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://"), at,
		phrase.NotAddress.Of(quote(text)), phrase.Example.Of("https://belfry.example.org"))
}

func (v *validator) channelRule(r *ChannelRule, at *path) {
	v.refuse(len(r.Events) == 0, at.field("events"), phrase.Missing, phrase.Example.Of("[failed, recovered]"))
	for n, name := range r.Namespaces {
		v.refuse(name != "*" && !isName(name), at.field("namespaces").item(n), phrase.NotNamespace.Of(quote(name)), phrase.NameOrAll)
	}
	for n, name := range r.Jobs {
		v.refuse(!globPattern.MatchString(name), at.field("jobs").item(n), phrase.NotJobName.Of(quote(name)), phrase.NameWithStars)
	}
	v.labels(r.Labels, at.field("labels"))
	has := func(wanted ...Notice) bool {
		for _, e := range r.Events {
			for _, w := range wanted {
				if e == w {
					return true
				}
			}
		}
		return false
	}
	v.refuse(r.InARow != 0 && !has(NoticeFailing, NoticeSkipped), at.field("in_a_row"), phrase.OnlyForFailing)
	v.refuse(r.For != 0 && !has(NoticeLate, NoticeLateStart, NoticeWaiting, NoticeSlow, NoticeApproval, NoticeNodeLost, NoticeDisk, NoticeSource), at.field("for"), phrase.OnlyForLasting)
}

func (v *validator) quietHours(q *QuietHours, at *path) {
	for name, clock := range map[string]string{"from": q.From, "to": q.To} {
		v.refuse(!clockPattern.MatchString(clock), at.field(name), phrase.NotClock.Of(quote(clock)), phrase.Example.Of("22:00"))
	}
	for i, day := range q.Days {
		_, ok := Weekday(day)
		v.refuse(!ok, at.field("days").item(i), phrase.NotWeekday.Of(quote(day)), phrase.List.Of(weekdays))
	}
}

// secret checks a reference to a secret of a channel.
func (v *validator) secret(c *Channel, s *Secret, at *path) {
	if s == nil {
		return
	}
	given := 0
	for _, text := range []string{s.Name, s.File, s.Env} {
		if text != "" {
			given++
		}
	}
	v.refuse(given != 1, at, phrase.OneOfSecret, phrase.Example.Of("{name: slack_url}"))
	if s.Name != "" {
		v.knowSecret(at.field("name"), namespaceOf(c.Namespace), s.Name)
	}
	v.refuse(s.Name != "" && !IsSecretName(s.Name), at.field("name"), phrase.NotSecretName.Of(quote(s.Name)), phrase.SecretForm)
	v.refuse(s.File != "" && !isName(s.File), at.field("file"), phrase.NotFileName.Of(quote(s.File)), phrase.NameForm)
	v.refuse(s.Env != "" && !secretEnv.MatchString(s.Env), at.field("env"), phrase.NotVariableEnd.Of(quote(s.Env)), phrase.VariableEndForm)
	// Two namespaces must not have the same prefix of variables.
	v.refuse(s.Env != "" && strings.ContainsAny(c.Namespace, "._"), at.field("env"), phrase.NotInDottedSpace, phrase.UseFile)
}

// service checks the service of a channel.
func (v *validator) service(c *Channel) {
	at, to := root.field("to"), &c.To
	count := 0
	value := reflect.ValueOf(to).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			count++
		}
	}
	v.refuse(count != 1, at, phrase.OneService, phrase.OneOf.Of(ServiceNames()))
	if w := to.Webhook; w != nil {
		at := at.field("webhook")
		v.refuse((w.URL == "") == (w.URLSecret == nil), at, phrase.OneOfURLs)
		v.address(w.URL, at.field("url"))
		v.refuse(w.Secret == nil, at.field("secret"), phrase.Missing, phrase.Example.Of("{file: webhook-key}"))
		v.secret(c, w.URLSecret, at.field("url_secret"))
		v.secret(c, w.Secret, at.field("secret"))
	}
	if m := to.Mail; m != nil {
		v.mail(c, m, at.field("mail"))
	}
	if s := to.Slack; s != nil {
		at := at.field("slack")
		v.refuse((s.URL == nil) == (s.Token == nil), at, phrase.OneOfURLToken)
		v.refuse(s.Token != nil && s.Channel == "", at.field("channel"), phrase.Missing, phrase.TokenNeedsChannel)
		v.refuse(s.URL != nil && s.Channel != "", at.field("channel"), phrase.OnlyWith.Of("token"), phrase.WebhookHasChannel)
		v.address(s.Server, at.field("server"))
		v.secret(c, s.URL, at.field("url"))
		v.secret(c, s.Token, at.field("token"))
	}
	for name, s := range map[string]*AddressService{"teams": to.Teams, "discord": to.Discord, "wecom": to.WeCom} {
		if s != nil {
			v.secret(c, &s.URL, at.field(name).field("url"))
		}
	}
	for name, s := range map[string]*SignedService{"dingtalk": to.DingTalk, "feishu": to.Feishu} {
		if s != nil {
			v.secret(c, &s.URL, at.field(name).field("url"))
			v.secret(c, s.Secret, at.field(name).field("secret"))
		}
	}
	if t := to.Telegram; t != nil {
		at := at.field("telegram")
		v.secret(c, &t.Token, at.field("token"))
		v.refuse(t.Chat == "", at.field("chat"), phrase.Missing, phrase.ChatForm)
		v.address(t.Server, at.field("server"))
	}
	if p := to.PagerDuty; p != nil {
		v.secret(c, &p.Key, at.field("pagerduty").field("key"))
		v.address(p.Server, at.field("pagerduty").field("server"))
	}
	if a := to.Alertmanager; a != nil {
		v.alertmanager(c, a, at.field("alertmanager"))
	}
	if o := to.Opsgenie; o != nil {
		v.secret(c, &o.Key, at.field("opsgenie").field("key"))
		v.address(o.Server, at.field("opsgenie").field("server"))
	}
}

// alertLabel is how Alertmanager writes labels.
var alertLabel = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (v *validator) alertmanager(c *Channel, a *AlertmanagerService, at *path) {
	v.refuse(len(a.URLs) == 0, at.field("urls"), phrase.Missing, phrase.Example.Of(`["http://alertmanager:9093"]`))
	for i, url := range a.URLs {
		v.address(url, at.field("urls").item(i))
		v.refuse(url == "", at.field("urls").item(i), phrase.Missing, phrase.Example.Of("http://alertmanager:9093"))
	}
	for name := range a.Labels {
		v.refuse(!alertLabel.MatchString(name), at.field("labels").field(name), phrase.NotLabel.Of(quote(name)), phrase.AlertLabelForm)
	}
	v.refuse((a.Username == "") != (a.Password == nil), at, phrase.BothOrNeither.Of("username", "password"))
	v.refuse(a.Token != nil && a.Password != nil, at, phrase.OneOfPasswords)
	v.secret(c, a.Password, at.field("password"))
	v.secret(c, a.Token, at.field("token"))
}

func (v *validator) mail(c *Channel, m *MailService, at *path) {
	v.refuse(!serverPattern.MatchString(m.Server), at.field("server"), phrase.NotServer.Of(quote(m.Server)), phrase.ServerForm)
	v.refuse(!mailPattern.MatchString(m.From), at.field("from"), phrase.NotMail.Of(quote(m.From)))
	v.refuse(len(m.To) == 0, at.field("to"), phrase.Missing, phrase.Receivers)
	for i, to := range m.To {
		v.refuse(!mailPattern.MatchString(to), at.field("to").item(i), phrase.NotMail.Of(quote(to)))
	}
	v.refuse((m.Username == "") != (m.Password == nil), at, phrase.BothOrNeither.Of("username", "password"))
	v.refuse(m.TLS == MailNoTLS && m.Password != nil, at.field("tls"), phrase.OpenPassword, phrase.UseTLS)
	v.secret(c, m.Password, at.field("password"))
}

// Kind returns the name of the service that is set, as in documents.
func (s *Service) Kind() string {
	value := reflect.ValueOf(s).Elem()
	for i, name := range ServiceNames() {
		if !value.Field(i).IsNil() {
			return name
		}
	}
	return ""
}

// ServiceNames returns the names of all services, as in documents.
func ServiceNames() (names []string) {
	for _, f := range fieldsOf(reflect.TypeFor[Service]()) {
		names = append(names, f.name)
	}
	return names
}
