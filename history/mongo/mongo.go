// Package mongo keeps history in MongoDB 4.4 and later: finished attempts and their output. Jobs
// and runs are in another store, such as etcd or Redis: see package store/joined.
//
// An attempt is a document whose _id is its run and number, so that appending it twice is appending
// it once. Besides the record in JSON it has fields for queries and for people. The package uses no
// transactions: a single server has none.
package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Options configure a history. The zero value is valid.
type Options struct {
	// Now is the clock of expiry. Default: [time.Now].
	Now func() time.Time
	// Log receives failures of the server. Default: no log.
	Log *slog.Logger
}

// History is a history in MongoDB. It is safe for concurrent use.
type History struct {
	client                   *mongo.Client
	attempts, output, common *mongo.Collection
	now                      func() time.Time
	log                      *slog.Logger

	mu   sync.Mutex
	ttls map[string]time.Duration // last settings of the collections
	// silent is the moment before which no output of a job with its own setting is left.
	silent      map[job.ID]time.Time
	silentSince time.Time
	// looked is the progress of expireOutput, with its start and limits.
	looked struct {
		keep        store.Retention
		since, from time.Time
	}
}

var _ store.History = (*History)(nil)

const (
	// callMax bounds a call: longer than an election.
	callMax = 30 * time.Second
	// selectMax is how long a call waits for a writable server.
	selectMax = 10 * time.Second
	// databaseDefault is the database of a URL that names none.
	databaseDefault = "belfry"
	// historyID is the document that has the id of the history.
	historyID = "history"
)

// AddressError is a mistake in the URL of a history.
type AddressError struct{ Cause error }

func (e *AddressError) Error() string { return "URL of MongoDB: " + e.Cause.Error() }

// Unwrap returns the mistake.
func (e *AddressError) Unwrap() error { return e.Cause }

// Open connects to the servers of a URL such as
//
//	mongodb://user:password@host1,host2/belfry?replicaSet=rs0&tls=true
//	mongodb+srv://user:password@cluster.example.net/belfry
//
// It takes MongoDB's parameters. The path behind the hosts is the database. Open makes
// the indexes.
func Open(ctx context.Context, url string, o Options) (*History, error) {
	h, err := connect(url, o)
	if err != nil {
		return nil, err
	}
	if err := h.prepare(ctx); err != nil {
		return nil, errors.Join(err, h.Close()) //nolint:contextcheck // the connections end whatever becomes of ctx
	}
	return h, nil
}

func connect(url string, o Options) (*History, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	opt := clientOptions(url)
	if err := opt.Validate(); err != nil {
		return nil, &AddressError{err}
	}
	client, err := mongo.Connect(opt)
	if err != nil {
		return nil, &AddressError{err}
	}
	db := client.Database(databaseOf(url))
	return &History{
		client: client, attempts: db.Collection("attempts"), output: db.Collection("output"), common: db.Collection("belfry"),
		now: o.Now, log: o.Log, ttls: map[string]time.Duration{}, silent: map[job.ID]time.Time{},
	}, nil
}

// databaseOf returns the database that a URL names.
func databaseOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	_, path, _ := strings.Cut(rest, "/")
	if name, _, _ := strings.Cut(path, "?"); name != "" {
		return name
	}
	return databaseDefault
}

// prepare makes the indexes.
func (h *History) prepare(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, x := range []struct {
		of   *mongo.Collection
		keys bson.D
	}{
		{h.attempts, bson.D{{Key: "job", Value: 1}, {Key: "ended", Value: -1}, {Key: "_id", Value: -1}}},
		{h.attempts, bson.D{{Key: "ended", Value: -1}, {Key: "_id", Value: -1}}},
		{h.attempts, bson.D{{Key: "final", Value: 1}, {Key: "outcome", Value: 1}, {Key: "ended", Value: -1}, {Key: "_id", Value: -1}}},
		{h.output, bson.D{{Key: "of", Value: 1}, {Key: "seq", Value: 1}}},
		{h.output, bson.D{{Key: "at", Value: 1}, {Key: "_id", Value: 1}}},
	} {
		if _, err := x.of.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: x.keys}); err != nil {
			return fmt.Errorf("make the indexes of history in MongoDB: %w", fault(ctx, err))
		}
	}
	return nil
}

// clientOptions returns the options of a URL, which may set all but the write concern.
func clientOptions(url string) *options.ClientOptions {
	concern := writeconcern.Majority()
	journal := true
	concern.Journal = &journal
	return options.Client().SetServerSelectionTimeout(selectMax).SetAppName("belfry").ApplyURI(url).SetWriteConcern(concern)
}

// Close ends the connections.
func (h *History) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), selectMax)
	defer cancel()
	if err := h.client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return err
	}
	return nil
}

// Check returns the product and version of the server at a URL, without changing anything.
func Check(ctx context.Context, url string) (about string, err error) {
	h, err := connect(url, Options{})
	if err != nil {
		return "", err
	}
	defer h.Close() //nolint:contextcheck // likewise
	ctx, cancel := bounded(ctx)
	defer cancel()
	var info struct {
		Version string `bson:"version"`
	}
	if err := h.common.Database().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return "", fmt.Errorf("connect to MongoDB: %w", fault(ctx, err))
	}
	if _, err := h.attempts.Find(ctx, bson.D{}, options.Find().SetLimit(1)); err != nil {
		return "", fmt.Errorf("read history in MongoDB: %w", fault(ctx, err))
	}
	return fmt.Sprintf("MongoDB %s, database %s", info.Version, h.common.Database().Name()), nil
}

// HistoryID implements [store.History].
func (h *History) HistoryID(ctx context.Context) (store.HistoryID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var is struct {
		ID int64 `bson:"id"`
	}
	err := h.common.FindOne(ctx, bson.D{{Key: "_id", Value: historyID}}).Decode(&is)
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = h.common.InsertOne(ctx, bson.D{{Key: "_id", Value: historyID}, {Key: "id", Value: 1 + rand.Int64N(1<<62)}})
		if err == nil || mongo.IsDuplicateKeyError(err) {
			err = h.common.FindOne(ctx, bson.D{{Key: "_id", Value: historyID}}).Decode(&is)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("id of the history: %w", fault(ctx, err))
	}
	return store.HistoryID(is.ID), nil
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callMax)
}

// The error codes that describe the state of the server.
const (
	outOfDiskSpace = 14031
	exceededQuota  = 8000
)

// away are the codes of servers that are not primary or are shutting down.
var away = []int{10107, 13435, 13436, 11600, 11602, 189, 91, 6, 7, 89, 9001}

// fault wraps an error with its sentinel.
func fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	var serverErr mongo.ServerError
	if !errors.As(err, &serverErr) {
		// The connection: no server that can be written was found in time.
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	for _, code := range away {
		if serverErr.HasErrorCode(code) {
			return fmt.Errorf("%w: %w", store.ErrAway, err)
		}
	}
	switch {
	case serverErr.HasErrorCode(outOfDiskSpace), serverErr.HasErrorCode(exceededQuota):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case mongo.IsNetworkError(err), mongo.IsTimeout(err), serverErr.HasErrorLabel("RetryableWriteError"):
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	return err
}
