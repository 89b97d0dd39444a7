package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// logName is the collection of the backlog, the store's default.
const logName = "outbox"

// row is what was measured with one number of routes: medians.
type row struct {
	Routes int `json:"routes"`
	// EventsPerSecond counts an event once for each route that delivered it;
	// a first scan read it. StreamEventsPerSecond is the same from a saved
	// token.
	EventsPerSecond       float64 `json:"events_per_s"`
	StreamEventsPerSecond float64 `json:"stream_events_per_s"`
	// AlonePerSecond is what one bare change stream reads.
	AlonePerSecond float64 `json:"alone_events_per_s"`
	OfReadingAlone float64 `json:"of_reading_alone"`
	// CommandsPerEvent is by event and route, the worse of both ways.
	CommandsPerEvent float64 `json:"commands_per_event"`
	// RSSMB and CPUSeconds are of the draining process, the worse of both.
	RSSMB      float64 `json:"rss_mb"`
	CPUSeconds float64 `json:"cpu_s"`
}

type logBench struct {
	servers
	backlog
	runs       int
	routes     []int
	partitions int
	profile    string

	db     *mongo.Database
	topics *topics
	primed bson.D // a cursor that was saved before the backlog was stored
	token  string
}

func benchLog(ctx context.Context, s servers, args []string) error {
	b := logBench{servers: s}
	flags := flag.NewFlagSet("bench log", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object: the first number of routes, and all as rows")
	flags.IntVar(&b.events, "events", 100_000, "events in the backlog")
	flags.IntVar(&b.size, "size", 500, "bytes of an event's payload")
	flags.IntVar(&b.keys, "keys", 1000, "different keys")
	flags.IntVar(&b.runs, "runs", 3, "runs of each kind, interleaved; the median counts")
	flags.IntVar(&b.partitions, "partitions", 3, "partitions of each topic")
	flags.StringVar(&b.profile, "profile", "", "write CPU profiles to files that begin so")
	routes := flags.String("routes", "1,3", "numbers of routes to measure with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*routes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--routes %q: want numbers such as 1,3", *routes)
		}
		b.routes = append(b.routes, n)
	}
	if b.events < 1 || b.runs < 1 || b.keys < 1 || b.partitions < 1 {
		return errors.New("--events, --runs, --keys and --partitions must be at least 1")
	}
	rows, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(struct {
			row
			Rows []row `json:"rows"`
		}{rows[0], rows})
	}
	b.print(rows)
	return nil
}

func (b *logBench) measure(ctx context.Context) (rows []row, err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL))
	if err != nil {
		return nil, fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	b.db = client.Database("bench-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	defer func() { err = errors.Join(err, b.db.Drop(context.WithoutCancel(ctx))) }()
	b.topics = newTopics(b.servers, b.partitions)
	defer b.topics.close()
	if err := b.prime(ctx); err != nil {
		return nil, err
	}
	if err := b.store(ctx, b.db.Collection(logName)); err != nil {
		return nil, err
	}
	for _, routes := range b.routes {
		r, err := b.measureRoutes(ctx, routes)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// prime makes a cursor that begins now, and keeps what it saved.
func (b *logBench) prime(ctx context.Context) error {
	store, err := mongostore.New(b.db, mongostore.Config{ReadWait: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	if err := store.EnsureIndexes(ctx); err != nil {
		return err
	}
	cursor, err := store.Acquire(ctx, core.AcquireRequest{Name: "primed", Owner: "bench", Start: core.Start{Now: true}})
	if err != nil {
		return err
	}
	for {
		batch, err := cursor.Read(ctx, core.ReadLimit{})
		if err != nil {
			return err
		}
		if batch.Reached != nil {
			if err := cursor.Save(ctx, []core.Mark{batch.Reached}); err != nil {
				return err
			}
			break
		}
	}
	if err := cursor.Release(ctx); err != nil {
		return err
	}
	cursors := b.db.Collection(logName + "_cursors")
	if err := cursors.FindOne(ctx, bson.D{{Key: "_id", Value: "primed"}}).Decode(&b.primed); err != nil {
		return fmt.Errorf("reading the primed cursor: %w", err)
	}
	var saved struct {
		Token bson.Raw `bson:"token"`
	}
	if err := cursors.FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: "primed"}}).Decode(&saved); err != nil {
		return fmt.Errorf("reading the primed cursor: %w", err)
	}
	if len(saved.Token) == 0 {
		return errors.New("the primed cursor saved no token")
	}
	b.token = base64.StdEncoding.EncodeToString(saved.Token)
	return nil
}

func (b *logBench) measureRoutes(ctx context.Context, routes int) (row, error) {
	var fresh, stream, alone []result
	for n := range b.runs {
		f, err := b.drain(ctx, routes, fmt.Sprintf("fresh-%d-%d", routes, n), false)
		if err != nil {
			return row{}, err
		}
		a, err := child(ctx, "alone-child", "--database", b.db.Name(), "--events", strconv.Itoa(b.events), "--token", b.token)
		if err != nil {
			return row{}, err
		}
		s, err := b.drain(ctx, routes, fmt.Sprintf("stream-%d-%d", routes, n), true)
		if err != nil {
			return row{}, err
		}
		fresh, alone, stream = append(fresh, f), append(alone, a), append(stream, s)
	}
	deliveries := float64(b.events * routes)
	perSecond := func(results []result, events float64) float64 {
		return events / median(results, func(r result) float64 { return r.Seconds })
	}
	worse := func(of func(result) float64) float64 { return max(median(fresh, of), median(stream, of)) }
	r := row{
		Routes:                routes,
		EventsPerSecond:       perSecond(fresh, deliveries),
		StreamEventsPerSecond: perSecond(stream, deliveries),
		AlonePerSecond:        perSecond(alone, float64(b.events)),
		CommandsPerEvent:      worse(func(r result) float64 { return float64(r.Commands) / deliveries }),
		RSSMB:                 worse(func(r result) float64 { return float64(r.RSS) / (1 << 20) }),
		CPUSeconds:            worse(func(r result) float64 { return r.CPU }),
	}
	r.OfReadingAlone = r.StreamEventsPerSecond / r.AlonePerSecond
	return r, nil
}

// drain runs the draining child once, on topics of its own, and checks that
// Kafka holds every event.
func (b *logBench) drain(ctx context.Context, routes int, name string, fromToken bool) (result, error) {
	args := []string{
		"drain-child", "--database", b.db.Name(), "--name", name,
		"--routes", strconv.Itoa(routes), "--events", strconv.Itoa(b.events),
	}
	if b.profile != "" {
		args = append(args, "--profile", b.profile+"-"+name+".pprof")
	}
	var made []string
	for n := range routes {
		route := routeName(name, n)
		topic := topicName(b.db.Name(), route)
		if err := b.topics.make(ctx, topic); err != nil {
			return result{}, err
		}
		made = append(made, topic)
		if fromToken {
			doc := slices.Clone(b.primed)
			for i := range doc {
				if doc[i].Key == "_id" {
					doc[i].Value = route
				}
			}
			if _, err := b.db.Collection(logName+"_cursors").InsertOne(ctx, doc); err != nil {
				return result{}, fmt.Errorf("storing a primed cursor: %w", err)
			}
		}
	}
	defer b.topics.remove(ctx, made...)
	r, err := child(ctx, args...)
	if err != nil {
		return result{}, err
	}
	for _, topic := range made {
		n, err := b.topics.count(ctx, topic)
		if err != nil {
			return result{}, err
		}
		if n < int64(b.events) {
			return result{}, fmt.Errorf("topic %s holds %d of %d events", topic, n, b.events)
		}
	}
	return r, nil
}

func routeName(run string, n int) string { return run + "-" + strconv.Itoa(n) }

func topicName(database, route string) string { return database + "-" + route }

func (b *logBench) print(rows []row) {
	fmt.Printf("%d events of %d bytes, medians of %d\n", b.events, b.size, b.runs)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "routes\tscan/s\tstream/s\talone/s\tof alone\tcommands/event\tpeak MB\tCPU s\t")
	for _, r := range rows {
		_, _ = fmt.Fprintf(t, "%d\t%.0f\t%.0f\t%.0f\t%.2f\t%.4f\t%.1f\t%.1f\t\n", r.Routes, r.EventsPerSecond,
			r.StreamEventsPerSecond, r.AlonePerSecond, r.OfReadingAlone, r.CommandsPerEvent, r.RSSMB, r.CPUSeconds)
	}
	_ = t.Flush()
}

func median(results []result, of func(result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}
