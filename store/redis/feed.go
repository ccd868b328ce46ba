package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/belfry-cron/belfry/store/internal/replica"
)

const (
	// feedMax bounds the changes that the server keeps, in bytes, for processes that were cut off
	// for a moment.
	feedMax = 32 << 20
	// feedPage is how many entries one read returns.
	feedPage = 64
	// feedWait is how long a read waits for a change: live nodes make some every 2 s.
	feedWait = 4 * time.Second
	// scanPage is how many copied keys are read at once when the copy is filled.
	scanPage = 1000
)

// errBroken says that a feed does not continue at the copy's position.
var errBroken = errors.New("the feed of changes does not continue where it was read")

// entry is a commit in the feed.
type entry struct {
	place
	before int64 // version of the previous commit
	puts   []replica.Pair
	gone   []string
}

// parseEntry parses an entry of the stream: its id, and names and values in turn.
func parseEntry(e any) (is entry, err error) {
	parts, err := redis.Values(e, nil)
	if err != nil || len(parts) != 2 {
		return is, fmt.Errorf("an entry of the feed has %d parts: %w", len(parts), cmp.Or(err, errBroken))
	}
	name, err := redis.String(parts[0], nil)
	if err != nil {
		return is, err
	}
	list, err := redis.ByteSlices(parts[1], nil)
	if err != nil {
		return is, err
	}
	fields := map[string][]byte{}
	for pair := range slices.Chunk(list, 2) {
		fields[string(pair[0])] = pair[len(pair)-1]
	}
	number := func(text string) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(text, 10, 64)
		}
		return n
	}
	id, _, _ := strings.Cut(name, "-")
	is.version, is.steps, is.before = number(id), number(string(fields["n"])), number(string(fields["p"]))
	if err != nil {
		return is, fmt.Errorf("entry %s of the feed: %w", name, err)
	}
	const head = 8
	for text := fields["d"]; len(text) > 0; {
		if len(text) < head {
			return is, fmt.Errorf("entry %s of the feed is cut off", name)
		}
		sizes := binary.BigEndian.Uint64(text)
		text = text[head:]
		key, value := int(sizes>>32), int(uint32(sizes)) // of the value one more than it has, or 0
		if key+max(value-1, 0) > len(text) {
			return is, fmt.Errorf("entry %s of the feed is cut off", name)
		}
		of := string(text[:key])
		text = text[key:]
		if value == 0 {
			is.gone = append(is.gone, of)
			continue
		}
		is.puts = append(is.puts, replica.Pair{Key: of, Value: bytes.Clone(text[:value-1]), Version: is.version})
		text = text[value-1:]
	}
	return is, nil
}

// Follow implements [replica.Driver].
func (d *driver) Follow(ctx context.Context, apply func(replica.Update)) {
	rest := restMin
	var at *place // position of the copy, nil until it is filled
	for ctx.Err() == nil {
		err := d.resume(ctx, &at, apply)
		if err == nil {
			rest = restMin
			if err = d.continuing(ctx, at, apply); errors.Is(err, errBroken) {
				at = nil
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
			rest = min(2*rest, restMax)
		}
	}
}

// resume makes sure that the feed has the place of the copy, or fills the copy.
func (d *driver) resume(ctx context.Context, at **place, apply func(replica.Update)) error {
	if *at != nil {
		found, err := d.between(ctx, d.now(), id((*at).version), id((*at).version))
		if err != nil || len(found) > 0 {
			return err
		}
	}
	filled, err := d.fill(ctx, apply)
	if err == nil {
		*at = &filled
	}
	return err
}

func id(version int64) string { return strconv.FormatInt(version, 10) }

// between returns entries of the feed, at most a page.
func (d *driver) between(ctx context.Context, c doer, from, to string) (list []entry, err error) {
	err = d.call(ctx, func(ctx context.Context, _ *client) error {
		found, err := redis.Values(c.do(ctx, "XRANGE", d.keys.feed, from, to, "COUNT", feedPage))
		if err == nil {
			list, err = parseEntries(found)
		}
		return err
	})
	return list, err
}

func parseEntries(found []any) (list []entry, err error) {
	for _, one := range found {
		is, err := parseEntry(one)
		if err != nil {
			return nil, err
		}
		list = append(list, is)
	}
	return list, nil
}

// continuing passes changes on from a place, until the feed breaks.
func (d *driver) continuing(ctx context.Context, at *place, apply func(replica.Update)) error {
	client := d.now()
	c, err := client.dedicated(ctx)
	if err != nil {
		d.redial(client)
		return ended(ctx, err)
	}
	defer c.Close()
	for {
		within, cancel := context.WithTimeout(ctx, feedWait+callMax)
		answer, err := redis.Values(c.do(within, "XREAD", "COUNT", feedPage, "BLOCK", feedWait.Milliseconds(), "STREAMS", d.keys.feed, id(at.version)))
		cancel()
		if err != nil {
			if !errors.Is(err, redis.ErrNil) { // nil, which is rare: nothing has changed, but is it the same server?
				d.redial(client)
			}
			return ended(ctx, err)
		}
		list, err := parseFeed(answer)
		if err != nil {
			return err
		}
		for _, is := range list {
			// An announced commit precedes its followers in the feed, or is lost.
			if mark := d.marked(); is.before != at.version || at.version < mark && mark < is.version {
				return errBroken
			}
			*at = is.place
			if d.a.wait == 0 { // otherwise it may not be acknowledged yet
				d.note(is.place)
			}
			apply(replica.Update{Puts: is.puts, Deletes: is.gone, Version: is.version})
		}
	}
}

// parseFeed parses the entries of a stream, behind its name.
func parseFeed(answer []any) ([]entry, error) {
	var found []any
	for _, one := range answer {
		stream, err := redis.Values(one, nil)
		if err != nil {
			return nil, err
		}
		if found, err = redis.Values(stream[len(stream)-1], nil); err != nil {
			return nil, err
		}
	}
	return parseEntries(found)
}

func (d *driver) marked() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mark.version
}

// fill reads all copied keys, and the changes in the meantime, on one connection: another
// server would order them differently.
func (d *driver) fill(ctx context.Context, apply func(replica.Update)) (at place, err error) {
	client := d.now()
	d.mu.Lock()
	mark := d.mark
	d.mu.Unlock()
	var lost int64
	all := map[string]replica.Pair{}
	err = func() error {
		c, err := client.dedicated(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		defer c.Close()
		if at, err = d.tail(ctx, c); err != nil {
			return err
		}
		if err := d.scan(ctx, c, all); err != nil {
			return err
		}
		if at, err = d.catchUp(ctx, c, all, at); err != nil {
			return err
		}
		lost, err = d.missing(ctx, c, mark)
		return err
	}()
	if err != nil {
		if !errors.Is(err, errBroken) {
			d.redial(client)
		}
		return at, err
	}
	whole := replica.Update{Whole: true, Version: at.version, Lost: lost}
	for _, p := range all {
		whole.Puts = append(whole.Puts, p)
	}
	d.mu.Lock()
	if lost > 0 && d.mark == mark { // each loss is reported once
		d.mark = place{}
	}
	d.mu.Unlock()
	apply(whole)
	return at, nil
}

// tail returns the latest commit of the master.
func (d *driver) tail(ctx context.Context, c doer) (at place, err error) {
	err = d.call(ctx, func(ctx context.Context, _ *client) error {
		have, err := redis.Strings(c.do(ctx, "HMGET", d.keys.meta, "tail", "steps"))
		if err != nil || have[0] == "" {
			return err
		}
		at.version, err = strconv.ParseInt(have[0], 10, 64)
		if err == nil {
			at.steps, err = strconv.ParseInt(have[1], 10, 64)
		}
		return err
	})
	return at, err
}

// scan reads all copied keys, each as it is at some moment.
func (d *driver) scan(ctx context.Context, c doer, all map[string]replica.Pair) error {
	for cursor := uint64(0); ; {
		err := d.call(ctx, func(ctx context.Context, _ *client) error {
			page, err := redis.Values(c.do(ctx, "HSCAN", d.keys.copied, cursor, "COUNT", scanPage))
			if err != nil {
				return err
			}
			var list [][]byte
			if _, err = redis.Scan(page, &cursor, &list); err != nil {
				return err
			}
			for pair := range slices.Chunk(list, 2) {
				key := string(pair[0])
				all[key] = pairOf(key, pair[len(pair)-1])
			}
			return nil
		})
		if err != nil || cursor == 0 {
			return err
		}
	}
}

// catchUp applies what was changed since a place.
func (d *driver) catchUp(ctx context.Context, c doer, all map[string]replica.Pair, at place) (place, error) {
	for {
		list, err := d.between(ctx, c, "("+id(at.version), "+")
		if err != nil || len(list) == 0 {
			return at, err
		}
		for _, is := range list {
			if is.before != at.version {
				return at, errBroken // the feed was trimmed during the reading
			}
			for _, p := range is.puts {
				if all[p.Key].Version <= p.Version {
					all[p.Key] = p
				}
			}
			for _, key := range is.gone {
				if all[key].Version < is.version {
					delete(all, key)
				}
			}
			at = is.place
		}
	}
}

// missing returns how many of the steps announced to this process the master lacks. Steps
// before the start of its feed are not counted.
func (d *driver) missing(ctx context.Context, c doer, mark place) (lost int64, err error) {
	if mark.version == 0 {
		return 0, nil
	}
	from, err := d.between(ctx, c, id(mark.version), "+")
	if err != nil || len(from) > 0 && from[0].version == mark.version {
		return 0, err
	}
	if len(from) > 0 {
		if from[0].before > mark.version {
			return 0, nil
		}
		return mark.steps - from[0].steps + 1, nil
	}
	at, err := d.tail(ctx, c)
	return mark.steps - at.steps, err
}
