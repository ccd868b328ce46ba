package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// About is the result of a check of a cluster.
type About struct {
	Version string // reported by the server
	Members int
	// Used is how many bytes of its database are in use, Size how large its file is, and Quota how
	// large that may be; 0 if it is not known, as with servers before 3.6.
	Used, Size, Quota int64
	// Full is set when a member has raised the alarm that its database is at the quota:
	// nothing is written until the alarm is disarmed.
	Full bool
}

// String describes the cluster in words.
func (a About) String() string {
	text := fmt.Sprintf("etcd %s with %d members; %d MB of %d MB in use", a.Version, a.Members, a.Used>>20, a.Size>>20)
	if a.Quota > 0 {
		text += fmt.Sprintf(", the quota is %d MB", a.Quota>>20)
	}
	return text
}

// NearlyFull is set where less than a fifth of the quota is left: at a tenth no run is planned
// or claimed any more.
func (a About) NearlyFull() bool { return a.Quota > 0 && a.Used > a.Quota/5*4 }

// IsLoose is set where most of a large file is not in use, which only defragmentation gives back.
func (a About) IsLoose() bool { return a.Size > looseMin && a.Used < a.Size/2 }

// looseMin is from which size on the file of a database is worth to be defragmented.
const looseMin = 512 << 20

// Check examines the cluster at an address without changing anything.
func Check(ctx context.Context, address string) (about About, err error) {
	a, err := parse(address)
	if err != nil {
		return about, err
	}
	client, err := connect(ctx, a)
	if err != nil {
		return about, err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	s, err := client.Status(within, a.Hosts[0])
	if err != nil {
		return about, fmt.Errorf("connect to etcd at %s: %w", strings.Join(a.Hosts, ", "), failure(err))
	}
	about = About{Version: s.Version, Used: s.DbSizeInUse, Size: s.DbSize, Quota: s.DbSizeQuota}
	members, err := client.MemberList(within)
	if err != nil {
		return about, failure(err)
	}
	about.Members = len(members.Members)
	alarms, err := client.AlarmList(within)
	if err != nil {
		return about, failure(err)
	}
	for _, alarm := range alarms.Alarms {
		about.Full = about.Full || alarm.Alarm == etcdserverpb.AlarmType_NOSPACE
	}
	return about, nil
}

// checkMax bounds a check. Tests raise it.
var checkMax = 5 * time.Second

func connect(ctx context.Context, a location) (*clientv3.Client, error) {
	client, err := clientv3.New(configOf(ctx, a))
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(a.Hosts, ", "), failure(err))
	}
	return client, nil
}
