package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// followersPlace is the end of a page of followers.
type followersPlace struct {
	After job.ID `json:"after"`
}

// followerPartsMax is how many parts of [PageMax] followers are searched for one page: there may be
// many that the caller may not see.
const followerPartsMax = 4

// Followers returns a page of the jobs that runs of a job start, each page sorted by name, as far as
// the caller may see them. A page may be shorter than requested before the last. A deleted job has
// the followers that wait for a new one of its name; without any it does not exist.
func (s *Jobs) Followers(ctx context.Context, who Caller, name Name, size int, token string) (client.Page[client.Follower], error) {
	page, err := s.FollowersOf(ctx, who, name, size, token)
	if err == nil && len(page.Items) == 0 && token == "" && page.NextPageToken == "" {
		_, err = s.find(ctx, who, Read, name)
	}
	return page, err
}

// FollowersOf is [Followers] of a job that is known to exist.
func (s *Jobs) FollowersOf(ctx context.Context, who Caller, name Name, size int, token string) (client.Page[client.Follower], error) {
	page := client.Page[client.Follower]{Items: []client.Follower{}}
	if err := who.MayIn(Read, name.Namespace); err != nil {
		return page, err
	}
	var place followersPlace
	if err := readToken(token, &place); err != nil {
		return page, err
	}
	size = pageSize(size)
	upstream, n, more := name.String(), size, true
	if !who.Everywhere(Read) {
		n = PageMax // some of them may be hidden
	}
	for part := 0; more && len(page.Items) < size && part < followerPartsMax; part++ {
		var jobs []*store.Job
		var err error
		if jobs, more, err = s.store.Followers(ctx, upstream, place.After, n); err != nil {
			return page, err
		}
		for _, j := range jobs {
			if len(page.Items) == size {
				more = true
				break
			}
			place.After = j.Definition.UID
			on := engine.StartedBy(j.Filled, upstream)
			if len(on) == 0 || !who.sees(j.Filled.FullName()) {
				continue
			}
			f := client.Follower{Namespace: j.Filled.Namespace, Name: j.Filled.Name, Outcomes: on}
			if status := j.Definition.Status; status != nil {
				f.State = status.State
			}
			page.Items = append(page.Items, f)
		}
	}
	if more {
		page.NextPageToken = writeToken(place)
	}
	slices.SortFunc(page.Items, func(a, b client.Follower) int {
		return cmp.Compare(a.FullName(), b.FullName())
	})
	return page, nil
}
