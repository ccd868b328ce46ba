package redis

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/belfry-cron/belfry/store"
)

func TestAddressesAreRead(t *testing.T) {
	a, err := parse("redis://u%40x:p%2Fw@one:1,two,[::1]:3/some/where/?sentinel=m&sentinel-auth=on&wait=2&db=3")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Hosts, []string{"one:1", "two:6379", "[::1]:3"}) || a.User != "u@x" || a.Password != "p/w" ||
		a.Prefix != "some/where" || a.TLS != nil || a.sentinel != "m" || !a.sentinelAuth || a.wait != 2 || a.db != 3 {
		t.Errorf("got %+v", a)
	}
	if a, err = parse("rediss://one?server-name=redis"); err != nil || a.Prefix != "belfry" || a.TLS == nil || a.TLS.ServerName != "redis" {
		t.Errorf("got %+v, %v", a, err)
	}
	for address, want := range map[string]struct {
		db     int
		prefix string
	}{
		"redis://one/0": {0, "belfry"}, "redis://one/3": {3, "belfry"}, "redis://one/3?prefix=x": {3, "x"}, "redis://one/3?db=3": {3, "belfry"},
		"redis://one/x": {0, "x"}, "redis://one/x?db=2": {2, "x"}, "redis://one?prefix=a/b&db=2": {2, "a/b"}, "redis://one/": {0, "belfry"},
	} {
		if a, err := parse(address); err != nil || a.db != want.db || a.Prefix != want.prefix {
			t.Errorf("%s: database %d, prefix %q, %v; want %+v", address, a.db, a.Prefix, err, want)
		}
	}
	if keysOf(a).meta != "{belfry}:meta" {
		t.Errorf("the keys are %+v", keysOf(a))
	}
}

func TestMistakesInAddressesAreNamed(t *testing.T) {
	for address, want := range map[string]string{
		"redis:///belfry":             "a host is missing",
		"redis://a,,b":                "a host is missing",
		"redis://u:%zz@a":             "in the password",
		"redis://a?tsl=true":          `unknown parameter "tsl"`,
		"redis://a?tls=maybe":         `"maybe" is neither true nor false`,
		"rediss://a?tls=false":        "tls=false stands behind rediss://",
		"redis://a/1?db=0":            "?db=0 says another one",
		"redis://a/-1":                "the number behind the hosts is -1",
		"redis://a/x?prefix=y":        "?prefix=y says another one",
		"redis://a?prefix=/x":         "begins or ends with /",
		"redis://a?prefix={x}":        "neither { nor }",
		"redis://a/{x}":               "neither { nor }",
		"redis://a?db=x":              `"x" is not the number of a database`,
		"redis://a?wait=11":           `"11" is not a number of replicas from 0 to 10`,
		"redis://a?sentinel-auth=on":  "sentinel-auth stands beside sentinel",
		"redis://a?ca=/does/not/real": "no such file",
		"etcd://a":                    "does not begin with redis://",
	} {
		if _, err := parse(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

func TestUnsuitableServersAreRefused(t *testing.T) {
	const well = "redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
	about := read(well)
	if err := about.usable(); err != nil {
		t.Error(err)
	}
	for change, want := range map[string]string{
		"maxmemory_policy:allkeys-lru":                "set it to noeviction",
		"redis_version:6.0.16":                        "6.2 or later",
		"redis_mode:sentinel":                         "add ?sentinel=",
		"role:slave":                                  store.ErrAway.Error(),
		"redis_version:7.2.4\r\nvalkey_version:8.1.0": "",
	} {
		about := read(well + change)
		switch err := about.usable(); {
		case want == "" && (err != nil || about.Server != "Valkey 8.1.0"):
			t.Errorf("%s: got %v, %s", change, err, about.Server)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", change, err, want)
		}
	}
}

func TestReasonsAreFoundInErrorsOfScripts(t *testing.T) {
	for message, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'. script: 5c5d, on @user_script:61.":                                       "OOM",
		"ERR Error running script (call to f_a1): @user_script:61: @user_script: 61: -MISCONF Redis is configured to save RDB snapshots,": "MISCONF",
		"READONLY You can't write against a read only replica.":                                                                           "READONLY",
	} {
		if got := refusal(redis.Error(message)); got != want {
			t.Errorf("%s: got %s, want %s", message, got, want)
		}
	}
	if err := failure(errors.New("EOF")); !errors.Is(err, store.ErrAway) {
		t.Errorf("got %v", err)
	}
}
