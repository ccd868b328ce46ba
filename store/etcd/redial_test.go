package etcd

import (
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A server that closes each connection at once stands for an absent one.
func TestAnAbsentServerIsTriedAgainEachSecond(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tries := make(chan struct{}, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tries <- struct{}{}
			_ = conn.Close()
		}
	}()
	a, err := parse("etcd://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(configOf(t.Context(), a))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go func() { _, _ = client.Get(t.Context(), "key") }()

	const most = time.Minute // with gRPC's own delays the tenth attempt comes after four minutes
	late := time.After(most)
	for n := range 11 {
		select {
		case <-tries:
		case <-late:
			t.Fatalf("the server was tried again %d times within %s", n-1, most)
		}
	}
}
