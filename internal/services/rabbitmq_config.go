package services

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var rabbitMQ = tool{name: "RabbitMQ", find: findRabbitMQ, packages: []string{"rabbitmq-server"}}

// findRabbitMQ returns the server's own script. The one that Debian puts on the
// path changes the user first, who then can't write to the folders here.
func findRabbitMQ(context.Context) (string, error) {
	const debian = "/usr/lib/rabbitmq/bin/rabbitmq-server"
	if exists(debian) {
		return debian, nil
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		return "", err
	}
	if !exists(filepath.Join(filepath.Dir(path), "rabbitmqctl")) {
		return "", errors.New("rabbitmqctl doesn't lie beside " + path)
	}
	return path, nil
}

func (r *RabbitMQ) ctl() string { return filepath.Join(filepath.Dir(r.program), "rabbitmqctl") }

func (r *RabbitMQ) nodeName() string {
	return "outbox" + strconv.Itoa(r.node.number) + "@localhost"
}

// settings returns the text of rabbitmq.conf.
func (r *RabbitMQ) settings() string {
	all := map[string]string{
		"listeners.tcp.1":   r.inner.address(),
		"default_user":      User,
		"default_pass":      Password,
		"log.console":       "true",
		"log.console.level": "warning",
		"log.file":          "false",

		// A machine with little space left still runs tests.
		"disk_free_limit.absolute": "50MB",
		// More than one broker may run here: none counts on the whole memory.
		"vm_memory_high_watermark.absolute": "1GB",
	}
	if r.config.TLS {
		maps.Copy(all, map[string]string{
			"listeners.ssl.1":                  r.clients.address(),
			"ssl_options.cacertfile":           r.folder.file("ca.pem"),
			"ssl_options.certfile":             r.folder.file("server.pem"),
			"ssl_options.keyfile":              r.folder.file("server.pem"),
			"ssl_options.verify":               "verify_peer",
			"ssl_options.fail_if_no_peer_cert": "false",
			"ssl_cert_login_from":              "common_name",
			"auth_mechanisms.1":                "EXTERNAL",
			"auth_mechanisms.2":                "PLAIN",
		})
	} else {
		all["listeners.tcp.2"] = r.clients.address()
	}
	maps.Copy(all, r.config.Settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text.WriteString(name + " = " + all[name] + "\n")
	}
	return text.String()
}

func (r *RabbitMQ) plugins() string {
	if r.config.TLS {
		return "[rabbitmq_auth_mechanism_ssl].\n"
	}
	return "[].\n"
}

// noEPMD makes Erlang nodes do without its port mapper, a daemon that would
// outlive everything here: the node's port is known.
func (r *RabbitMQ) noEPMD() string {
	return "-start_epmd false -erl_epmd_port " + strconv.Itoa(r.node.number)
}

// environment is the server's.
func (r *RabbitMQ) environment() []string {
	return append(r.both(),
		"ERL_FLAGS=-start_epmd false", // for nodes that the server starts
		"RABBITMQ_NODENAME="+r.nodeName(),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(r.node.number),
		"RABBITMQ_CONFIG_FILE="+r.folder.file("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+r.folder.file("plugins"),
		"RABBITMQ_MNESIA_BASE="+r.folder.file("data"),
		"RABBITMQ_LOG_BASE="+r.folder.file("logs"),
		// The script becomes the server instead of starting one.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -sname "+r.nodeName()+" "+r.noEPMD()+
			" -kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
	)
}

// ctlEnvironment is that of rabbitmqctl, which is a node that nobody calls.
func (r *RabbitMQ) ctlEnvironment() []string {
	return append(r.both(), "ERL_FLAGS="+r.noEPMD()+" -dist_listen false")
}

func (r *RabbitMQ) both() []string {
	return []string{
		"HOME=" + r.folder.path, // holds the cookie by which nodes know one another
		"RABBITMQ_CONF_ENV_FILE=" + r.folder.file("env"),
		"ERL_CRASH_DUMP_BYTES=0",
		"LC_ALL=C.UTF-8",
	}
}

// command returns the arguments for env. What the environment says of another
// broker is left out.
func (r *RabbitMQ) command(environment []string, program string, args ...string) []string {
	var command []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "RABBITMQ_") {
			command = append(command, "-u", name)
		}
	}
	command = append(command, environment...)
	return append(append(command, program), args...)
}
