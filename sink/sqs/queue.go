package sqs

import (
	"errors"
	"net/url"
	"strings"
	"text/template"

	"github.com/gooutbox/outbox/internal/naming"
)

const (
	// maxQueues bounds what is remembered, whatever the events' types are.
	maxQueues = 10_000
	// maxPlace bounds a URL.
	maxPlace = 512
)

// newQueues makes the name or URL of each event's queue.
func newQueues(text string) (*naming.Template, error) {
	return naming.Parse(text, naming.Spec{
		What: "queue", Owner: "queue's name", Field: "Queue", Most: maxPlace, Valid: validPlace,
		Funcs: template.FuncMap{"replace": replace},
	})
}

func replace(old, by, value string) string { return strings.ReplaceAll(value, old, by) }

var errNoPlace = errors.New("it is a URL that ends in a name, or a name of 1 to 80 of A-Z a-z 0-9 _ -, " +
	"the suffix .fifo of FIFO queues included")

func validPlace(place string) error {
	if len(place) > maxPlace || !isPlace(place) {
		return errNoPlace
	}
	return nil
}

// isPlace tells whether the text is the name or the URL of a queue.
func isPlace(place string) bool {
	if !isURL(place) {
		return isQueueName(place)
	}
	u, err := url.Parse(place)
	return err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!strings.Contains(place, "\\") && isQueueName(nameOf(place))
}

func isURL(place string) bool {
	return strings.HasPrefix(place, "https://") || strings.HasPrefix(place, "http://")
}

// nameOf is the queue's name of a name or URL.
func nameOf(place string) string { return place[strings.LastIndexByte(place, '/')+1:] }

func isFIFO(place string) bool { return strings.HasSuffix(place, fifoSuffix) }

// isQueueName follows SQS's rules for the names of queues.
func isQueueName(name string) bool {
	stem := strings.TrimSuffix(name, fifoSuffix)
	if stem == "" || len(name) > maxQueueName {
		return false
	}
	for i := range len(stem) {
		switch c := stem[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
