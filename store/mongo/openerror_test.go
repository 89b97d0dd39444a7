package mongo

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestEveryMeaningOfAnError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want meaning
	}{
		"network":         {mongo.CommandError{Code: 286, Labels: []string{"NetworkError"}}, meansWait},
		"no server":       {errors.New("server selection timeout"), meansWait},
		"resumable":       {mongo.CommandError{Code: 999, Labels: []string{"ResumableChangeStreamError"}}, meansWait},
		"stepped down":    {mongo.CommandError{Code: 189}, meansWait},
		"cursor gone":     {mongo.CommandError{Code: 43}, meansWait},
		"unauthorized":    {mongo.CommandError{Code: 13}, meansRights},
		"log-in refused":  {mongo.CommandError{Code: 18}, meansRights},
		"standalone":      {mongo.CommandError{Code: 40573}, meansNone},
		"a view":          {mongo.CommandError{Code: 166}, meansUnfit},
		"history lost":    {mongo.CommandError{Code: 286}, meansLost},
		"unknown token":   {mongo.CommandError{Code: 280}, meansLost},
		"invalid token":   {mongo.CommandError{Code: 260}, meansLost},
		"unreadable":      {mongo.CommandError{Code: 9}, meansLost},
		"of a later time": {mongo.CommandError{Code: 123456}, meansLost},
	} {
		if got := meaningOf(fmt.Errorf("wrapped: %w", tc.err)); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
