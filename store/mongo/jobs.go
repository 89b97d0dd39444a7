package mongo

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

var _ core.Admin = (*Store)(nil)

// maxJobsPage bounds a page of Jobs.
const maxJobsPage = 1000

// withoutContent leaves out of a job what may be large or secret, but for the
// payload's size.
var withoutContent = []bson.D{
	op("$set", bson.D{{Key: "payload_bytes", Value: op("$switch", bson.D{
		{Key: "branches", Value: bson.A{
			bson.D{
				{Key: "case", Value: op("$in", bson.A{op("$type", "$payload"), bson.A{"binData", "string"}})},
				{Key: "then", Value: op("$binarySize", "$payload")},
			},
			bson.D{{Key: "case", Value: op("$eq", bson.A{op("$type", "$payload"), "object"})}, {Key: "then", Value: op("$bsonSize", "$payload")}},
		}},
		{Key: "default", Value: 0},
	})}}),
	op("$unset", bson.A{"payload", "document", "headers"}),
}

// Job returns one job, see core.Admin.
func (s *Store) Job(ctx context.Context, id string) (core.JobInfo, error) {
	var jobs []readJob
	err := s.exists(ctx)
	if err == nil {
		jobs, err = s.jobsBy(withoutSession(ctx), bson.D{anyJob, {Key: "_id", Value: op("$in", s.idsNamed(id))}}, 1)
	}
	if err == nil && len(jobs) == 0 {
		err = core.ErrNoJob
	}
	if err != nil {
		return core.JobInfo{}, fmt.Errorf("reading job %s: %w", id, err)
	}
	return jobs[0].info(), nil
}

// Jobs lists jobs page by page, see core.Admin. A page has 1,000 jobs at most.
// The cost of a page grows with the number of jobs that match.
func (s *Store) Jobs(ctx context.Context, filter core.JobFilter, after string, limit int) ([]core.JobInfo, string, error) {
	jobs, next, err := s.page(withoutSession(ctx), filter, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("listing jobs: %w", err)
	}
	infos := make([]core.JobInfo, len(jobs))
	for i := range jobs {
		infos[i] = jobs[i].info()
	}
	return infos, next, nil
}

func (s *Store) page(ctx context.Context, filter core.JobFilter, after string, limit int) ([]readJob, string, error) {
	query, ok := s.selecting(filter)
	if err := s.exists(ctx); err != nil || !ok {
		return nil, "", err
	}
	if limit <= 0 || limit > maxJobsPage {
		limit = maxJobsPage
	}
	place := bson.A{}
	for _, e := range jobOrder {
		place = append(place, op("$ifNull", bson.A{"$" + e.Key, nil}))
	}
	if after != "" {
		last, err := parsePlace(after)
		if err != nil {
			return nil, "", err
		}
		later := bson.D{{Key: "$expr", Value: op("$gt", bson.A{place, literal(last)})}}
		query = bson.D{{Key: "$and", Value: bson.A{query, later}}}
	}
	jobs, err := s.jobsBy(ctx, query, limit+1)
	if err != nil || len(jobs) <= limit {
		return jobs, "", err
	}
	return jobs[:limit], placeText(&jobs[limit-1]), nil
}

// placeText writes where a job stands in jobOrder.
func placeText(j *readJob) string {
	var place bson.A
	for _, v := range []bson.RawValue{j.rawSeq, j.positionTime, j.positionOrdinal, j.id} {
		if v.IsZero() {
			place = append(place, nil)
		} else {
			place = append(place, v)
		}
	}
	return base64.RawURLEncoding.EncodeToString(mustMarshal(bson.D{{Key: "after", Value: place}}))
}

func parsePlace(text string) (bson.RawValue, error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || bson.Raw(data).Validate() != nil {
		return bson.RawValue{}, errors.New("after is not what an earlier page gave as next")
	}
	place := bson.Raw(data).Lookup("after")
	if place.Type != bson.TypeArray {
		return bson.RawValue{}, errors.New("after is not what an earlier page gave as next")
	}
	return place, nil
}

// jobsBy are the first jobs that match, without their content.
func (s *Store) jobsBy(ctx context.Context, query bson.D, limit int) ([]readJob, error) {
	pipeline := bson.A{op("$match", query), op("$sort", jobOrder), op("$limit", limit)}
	for _, stage := range withoutContent {
		pipeline = append(pipeline, stage)
	}
	cur, err := s.jobs.Aggregate(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	return s.readJobs(ctx, cur)
}

func (s *Store) readJobs(ctx context.Context, cur *mongo.Cursor) ([]readJob, error) {
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	var jobs []readJob
	for cur.Next(ctx) {
		jobs = append(jobs, s.decodeJob(ctx, cur.Current))
	}
	return jobs, cur.Err()
}
