package kafka

import (
	"errors"

	"github.com/gooutbox/outbox/internal/naming"
)

// maxNameBytes is Kafka's bound of a topic's name.
const maxNameBytes = 249

// newTopics names the topic of each event.
func newTopics(text string) (*naming.Template, error) {
	return naming.Parse(text, naming.Spec{
		What: "topic", Owner: "topic's name", Field: "Topic", Most: maxNameBytes, Valid: validTopic,
	})
}

var errNoTopicName = errors.New("a name has 1 to 249 of A-Z a-z 0-9 . _ - and is not only dots")

// validTopic follows Kafka's rules for topic names.
func validTopic(name string) error {
	if name == "" || len(name) > maxNameBytes || name == "." || name == ".." {
		return errNoTopicName
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return errNoTopicName
		}
	}
	return nil
}
