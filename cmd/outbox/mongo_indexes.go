package main

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ensureIndexes makes the collections and indexes of the log, or with dryRun
// only tells which are missing.
func (s *mongoStore) ensureIndexes(ctx context.Context, dryRun bool) ([]string, error) {
	missing, err := s.Missing(ctx)
	if err != nil {
		return nil, err
	}
	verb := "would make "
	if !dryRun {
		if err := s.EnsureIndexes(ctx); err != nil {
			return nil, err
		}
		verb = "made "
	}
	lines := make([]string, 0, len(missing)+1)
	for _, m := range missing {
		lines = append(lines, verb+s.options.Database+"."+m)
	}
	if len(missing) == 0 {
		lines = append(lines, "nothing to make: all is there")
	}
	return lines, nil
}

// ensureValidators sets the validators of log and queue.
func (s *mongoStore) ensureValidators(ctx context.Context, dryRun bool) ([]string, error) {
	names := []string{s.options.Collection, s.options.Collection + "_jobs"}
	before, err := s.validators(ctx, names)
	if err != nil {
		return nil, err
	}
	after := before
	if !dryRun {
		if err := s.EnsureValidators(ctx); err != nil {
			return nil, err
		}
		if after, err = s.validators(ctx, names); err != nil {
			return nil, err
		}
	}
	var lines []string
	for _, name := range names {
		full := s.options.Database + "." + name
		switch {
		case dryRun && before[name] != "":
			lines = append(lines, "would set the validator of "+full+" anew, where it differs")
		case dryRun:
			lines = append(lines, "would set the validator of "+full)
		case before[name] == after[name]:
			lines = append(lines, "the validator of "+full+" is as it was")
		case before[name] != "":
			lines = append(lines, "changed the validator of "+full)
		default:
			lines = append(lines, "set the validator of "+full)
		}
	}
	return lines, nil
}

// validators are those of collections that have one, as texts to compare.
func (s *mongoStore) validators(ctx context.Context, names []string) (map[string]string, error) {
	found, err := s.client.Database(s.options.Database).ListCollectionSpecifications(ctx,
		bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return nil, fmt.Errorf("reading the validators: %w", err)
	}
	validators := map[string]string{}
	for _, one := range found {
		if v, err := one.Options.LookupErr("validator"); err == nil {
			validators[one.Name] = v.String() + one.Options.Lookup("validationLevel").String() + one.Options.Lookup("validationAction").String()
		}
	}
	return validators, nil
}
