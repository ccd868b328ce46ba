package engine

import (
	"cmp"
	"reflect"

	"github.com/belfry-cron/belfry/job"
)

// Head is what calendars, pools, channels and lists of executors have alike.
type Head struct {
	Kind            job.Kind
	Namespace, Name *string
	UID             *job.ID
	Version         *int64
}

// FullName returns the full name of the document.
func (h Head) FullName() string {
	return cmp.Or(*h.Namespace, job.DefaultNamespace) + "/" + *h.Name
}

// CalendarHead returns the head of a calendar.
func CalendarHead(c *job.Calendar) Head {
	return Head{job.KindCalendar, &c.Namespace, &c.Name, &c.UID, &c.Version}
}

// PoolHead returns the head of a pool.
func PoolHead(p *job.Pool) Head {
	return Head{job.KindPool, &p.Namespace, &p.Name, &p.UID, &p.Version}
}

// ChannelHead returns the head of a channel.
func ChannelHead(c *job.Channel) Head {
	return Head{job.KindChannel, &c.Namespace, &c.Name, &c.UID, &c.Version}
}

// ExecutorsHead returns the head of a list of executors.
func ExecutorsHead(e *job.Executors) Head {
	return Head{job.KindExecutors, &e.Namespace, &e.Name, &e.UID, &e.Version}
}

// PutDocument decides about a document other than a job that replaces an old one, nil for
// none: it gets the uid of the old one or a new one, and the next version. An equal old one
// stays.
func PutDocument[T any](old *T, given T, head func(*T) Head, ifVersion int64, newID func() job.ID) (put *T, changed bool, err error) {
	h := head(&given)
	*h.Namespace = cmp.Or(*h.Namespace, job.DefaultNamespace)
	*h.UID, *h.Version = job.ID{}, 0
	if old != nil {
		was := head(old)
		*h.UID, *h.Version = *was.UID, *was.Version
	}
	same := old != nil && reflect.DeepEqual(*old, given)
	if err := checkVersion(*h.Version, ifVersion, same); err != nil || same {
		return old, false, err
	}
	if old == nil {
		*h.UID = newID()
	}
	*h.Version++
	return &given, true, nil
}
