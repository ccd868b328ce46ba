package notification

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// The bounds of a group, so that it fits into a note of the store.
const (
	// itemsMax is how many problems a group lists: more than people read. Further ones are counted.
	itemsMax = 100
	// seenMax is how many counted events a group remembers: more than one read of the feed, so that
	// none is counted twice after a crash.
	seenMax = 600
	// textMax bounds the stored reason of a problem, in bytes.
	textMax = 400
)

// The waits after failures.
const (
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
	// refusedRest is the wait after a refusal that will probably be repeated: a person has to
	// change the channel or its secret.
	refusedRest = time.Hour
	// refusedMax bounds the tries of a refused message: one an hour, for a day.
	refusedMax = 24
	// afterMax bounds the delay that a service requests by Retry-After.
	afterMax = time.Hour
)

// Group has related problems that share a series of messages, and what was reported about
// them.
type Group struct {
	ID      string  `json:"id"`
	Channel string  `json:"channel"` // namespace/name
	UID     job.ID  `json:"uid"`     // of the channel
	About   string  `json:"about"`
	Items   []*Item `json:"items,omitempty"`
	// Left counts the events of problems that are not listed.
	Left int `json:"left,omitempty"`

	// News grows with each event to report; Since is the time of the first unreported one.
	News  int64     `json:"news"`
	Since time.Time `json:"since,omitzero"`
	// Said is the News of the latest delivered message, at SaidAt, and Messages their number.
	Said     int64     `json:"said,omitempty"`
	SaidAt   time.Time `json:"said_at,omitzero"`
	Messages int       `json:"messages,omitempty"`
	// Trying is the News of a message with an unknown result: it is sent again under the
	// same id.
	Trying  int64      `json:"trying,omitempty"`
	Tries   int        `json:"tries,omitempty"`
	Next    time.Time  `json:"next,omitzero"` // not before
	Error   job.Reason `json:"error,omitzero"`
	Refused bool       `json:"refused,omitempty"`
	// Acked is when a person acknowledged the problem.
	Acked   time.Time `json:"acked,omitzero"`
	AckedBy string    `json:"acked_by,omitempty"`
	// Seen are the marks of the latest events.
	Seen []string `json:"seen,omitempty"`
}

// Item is a problem.
type Item struct {
	Event
	First time.Time `json:"first"`
	News  int64     `json:"news"`
	// Over is when the problem ended, zero before.
	Over    time.Time `json:"over,omitzero"`
	TellEnd bool      `json:"tell_end,omitempty"`
	Told    bool      `json:"told,omitempty"` // its beginning was reported
}

// NewGroup returns the empty group of an event.
func NewGroup(c *job.Channel, e *Event) *Group {
	return &Group{ID: GroupID(c, e), Channel: c.FullName(), UID: c.UID, About: groupOf(c, e)}
}

// Add adds an event that the channel selects, and reports whether anything changed.
func (g *Group) Add(c *job.Channel, e Event, now time.Time) bool {
	e.Count, e.Text = max(e.Count, 1), e.Text.Map(func(text string) string { return cut(text, textMax) })
	e.Cause = cut(e.Cause, textMax)
	if !e.Run.IsZero() && !e.Kind.OfServer() {
		mark := e.mark()
		if slices.Contains(g.Seen, mark) {
			return false
		}
		g.Seen = append(g.Seen, mark)
		g.Seen = g.Seen[max(0, len(g.Seen)-seenMax):]
	}
	i := slices.IndexFunc(g.Items, func(i *Item) bool { return i.Key() == e.Key() })
	switch {
	case i >= 0 && g.Items[i].Over.IsZero():
		if e.Lasting && e.Kind != job.NoticeFailed && e.Kind != job.NoticeFailing {
			return false // it still lasts, as reported
		}
		is := g.Items[i]
		e.Count += is.Count
		is.Event = e
	case i >= 0 && g.Items[i].News > g.Said: // it began again before its end was reported
		is := g.Items[i]
		e.Count += is.Count
		is.Event, is.Over = e, time.Time{}
	case len(g.Items) >= itemsMax:
		g.Left += e.Count
		g.tell(nil, now)
		return true
	default:
		if i >= 0 {
			g.Items = slices.Delete(g.Items, i, i+1)
		}
		g.Items = append(g.Items, &Item{Event: e, First: e.Time})
		i = len(g.Items) - 1
		g.Acked, g.AckedBy = time.Time{}, "" // this one is not acknowledged
	}
	is := g.Items[i]
	is.TellEnd = e.Lasting && wantsEnd(c, &e, now)
	if !e.Lasting {
		is.Over = now
	}
	g.tell(is, now)
	return true
}

// tell records news.
func (g *Group) tell(is *Item, now time.Time) {
	if g.News == g.Said {
		g.Since = now
	}
	g.News++
	if is != nil {
		is.News = g.News
	}
}

// End records the end of a problem, and reports whether anything changed.
func (g *Group) End(key string, now time.Time) bool {
	for _, is := range g.Items {
		if is.Key() == key && is.Over.IsZero() {
			is.Over = now
			switch {
			case is.News > max(g.Said, g.Trying): // reported together with its end
			case is.TellEnd:
				g.tell(is, now)
			case is.News <= g.Said:
				g.drop()
			}
			return true
		}
	}
	return false
}

// Open returns the problems that are not over.
func (g *Group) Open() (open []*Item) {
	for _, is := range g.Items {
		if is.Over.IsZero() {
			open = append(open, is)
		}
	}
	return open
}

// Pending reports whether there is news to report.
func (g *Group) Pending() bool { return g.News > g.Said }

// due returns when the next message of the group is due, zero if it has no news.
func (g *Group) due(c *job.Channel) time.Time {
	var at time.Time
	switch {
	case g.Pending():
		at = g.Since.Add(time.Duration(c.Group.Wait))
		if !g.SaidAt.IsZero() {
			at = later(at, g.SaidAt.Add(time.Duration(c.Group.Every)))
		}
	case c.Repeat > 0 && g.Acked.IsZero() && !g.SaidAt.IsZero() && len(g.Open()) > 0:
		at = g.SaidAt.Add(time.Duration(c.Repeat))
	default:
		return time.Time{}
	}
	return later(at, g.Next)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Idle reports whether the group can be forgotten: it has no news, no lasting problem, and no pause
// after its latest message.
func (g *Group) Idle(c *job.Channel, now time.Time) bool {
	return !g.Pending() && len(g.Open()) == 0 && now.Sub(g.SaidAt) >= time.Duration(c.Group.Every)
}

// Begin returns the News of the message that is about to be sent.
func (g *Group) Begin() int64 {
	if g.Trying <= g.Said || !slices.ContainsFunc(g.Items, func(is *Item) bool { return is.News > g.Said && is.News <= g.Trying }) {
		g.Trying = g.News
	}
	return g.Trying
}

// Delivered notes that a message was delivered.
func (g *Group) Delivered(now time.Time) {
	g.Said, g.SaidAt, g.Messages = g.Trying, now, g.Messages+1
	g.settle()
	if g.Pending() {
		g.Since = now
	}
}

func (g *Group) settle() {
	g.Tries, g.Next, g.Error, g.Refused, g.Trying = 0, time.Time{}, job.Reason{}, false, 0
	if g.Said == g.News {
		g.Left = 0
	}
	for _, is := range g.Items {
		is.Told = is.Told || is.News <= g.Said
	}
	g.drop()
}

// drop removes events that are over and reported.
func (g *Group) drop() {
	g.Items = slices.DeleteFunc(g.Items, func(is *Item) bool { return !is.Over.IsZero() && is.News <= g.Said })
}

// Ack records who acknowledged the lasting problems.
func (g *Group) Ack(by string, now time.Time) { g.Acked, g.AckedBy = now, by }

// Failure is why a message was not delivered.
type Failure struct {
	Err error
	// Refused is set if the service will refuse the same message again.
	Refused bool
	// After is how long the service asks to wait.
	After time.Duration
	// Unsure is set if the service may have accepted the message.
	Unsure bool
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Reason returns the error as it is stored.
func (f *Failure) Reason() job.Reason {
	return reason.Say(phrase.OfError(f.Err)).Map(func(text string) string { return cut(text, textMax) })
}

// Refuse records the refusal of a message, and reports whether it was given up.
func (g *Group) Refuse(f *Failure, now time.Time) (givenUp bool) {
	g.Tries++
	if g.Tries >= refusedMax {
		g.Said, g.SaidAt = g.Trying, now
		g.settle()
		g.Error, g.Refused = f.Reason(), true
		return true
	}
	g.Error, g.Refused, g.Trying, g.Next = f.Reason(), true, 0, now.Add(refusedRest)
	return false
}

// Retry records that a message was not delivered but may be later. If it certainly did not arrive,
// its news may be merged with later news.
func (g *Group) Retry(f *Failure) {
	g.Tries, g.Error, g.Refused = g.Tries+1, f.Reason(), false
	if !f.Unsure {
		g.Trying = 0
	}
}

// ChannelState is the state of a channel's deliveries.
type ChannelState struct {
	Channel string `json:"channel"` // namespace/name
	UID     job.ID `json:"uid"`
	Version int64  `json:"version"` // version of the channel at the latest try

	Sent     int64      `json:"sent"`
	Failed   int64      `json:"failed"`   // tries
	GivenUp  int64      `json:"given_up"` // messages given up after a day of refusals
	Dropped  int64      `json:"dropped"`  // events without room
	SentAt   time.Time  `json:"sent_at,omitzero"`
	Error    job.Reason `json:"error,omitzero"` // error of the latest try, if it failed
	FailedAt time.Time  `json:"failed_at,omitzero"`
	Tries    int        `json:"tries,omitempty"` // tries since the latest delivery
	Next     time.Time  `json:"next,omitzero"`   // no try before

	// Tokens is how many messages may be sent, as of TokensAt.
	Tokens   float64   `json:"tokens"`
	TokensAt time.Time `json:"tokens_at,omitzero"`
}

// tokens returns how many messages may be sent now.
func (s *ChannelState) tokens(c *job.Channel, now time.Time) float64 {
	most := float64(c.Limit.Messages)
	if s.TokensAt.IsZero() {
		return most
	}
	return min(most, s.Tokens+now.Sub(s.TokensAt).Seconds()*most/time.Duration(c.Limit.Per).Seconds())
}

// Delivered notes a message that was delivered.
func (s *ChannelState) Delivered(c *job.Channel, now time.Time) {
	s.Tokens, s.TokensAt = s.tokens(c, now)-1, now
	s.Sent, s.SentAt, s.Error, s.Tries, s.Next = s.Sent+1, now, job.Reason{}, 0, time.Time{}
}

// Fail notes a failed try: the channel backs off.
func (s *ChannelState) Fail(f *Failure, now time.Time) {
	s.Failed, s.FailedAt, s.Error, s.Tries = s.Failed+1, now, f.Reason(), s.Tries+1
	if f.Refused {
		return // the message itself is refused
	}
	rest := min(retryMost, retryFirst<<min(s.Tries-1, 10))
	s.Next = now.Add(max(rest, min(f.After, afterMax)))
}

// Plan returns the groups for the next message of a channel, none if none is due yet. The last
// message within the limit is about all due groups.
func Plan(c *job.Channel, s *ChannelState, groups []*Group, now time.Time) (next []*Group) {
	if c.Paused || now.Before(s.Next) {
		return nil
	}
	allowed := s.tokens(c, now)
	if allowed < 1 {
		return nil
	}
	for _, g := range groups {
		if at := g.due(c); !at.IsZero() && !at.After(now) && !quiet(c, g, now) {
			next = append(next, g)
		}
	}
	slices.SortFunc(next, func(a, b *Group) int {
		return cmp.Or(a.due(c).Compare(b.due(c)), cmp.Compare(a.ID, b.ID))
	})
	if len(next) > 1 && (apart(c) || allowed >= 2) {
		next = next[:1]
	}
	return next[:min(len(next), itemsMax)]
}

// quiet reports whether a group waits for the end of quiet hours.
func quiet(c *job.Channel, g *Group, now time.Time) bool {
	for i := range c.Quiet {
		q := &c.Quiet[i]
		excepted := slices.ContainsFunc(g.Items, func(is *Item) bool {
			return is.News > g.Said && is.Over.IsZero() && slices.Contains(q.Except, is.Kind)
		})
		if within(c, q, now) && !excepted {
			return true
		}
	}
	return false
}

// within reports whether a moment lies in quiet hours.
func within(c *job.Channel, q *job.QuietHours, now time.Time) bool {
	zone, err := c.Location()
	if err != nil {
		return false // the channel's definition was validated
	}
	local := now.In(zone.Location())
	for ago := range 2 { // they may have begun yesterday
		year, month, day := local.AddDate(0, 0, -ago).Date()
		begin := time.Date(year, month, day, digits(q.From[:2]), digits(q.From[3:]), 0, 0, zone.Location())
		if len(q.Days) > 0 && !slices.ContainsFunc(q.Days, func(name string) bool {
			on, _ := job.Weekday(name)
			return on == begin.Weekday()
		}) {
			continue
		}
		if q.To <= q.From {
			day++
		}
		end := time.Date(year, month, day, digits(q.To[:2]), digits(q.To[3:]), 0, 0, zone.Location())
		if !now.Before(begin) && now.Before(end) {
			return true
		}
	}
	return false
}

// digits returns the number of two digits.
func digits(text string) int { return int(text[0]-'0')*10 + int(text[1]-'0') }
