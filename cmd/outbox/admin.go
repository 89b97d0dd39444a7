package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/gooutbox/outbox/internal/config"
)

// admin serves metrics and health until it is closed.
type admin struct {
	server   *http.Server
	listener net.Listener
	ended    chan struct{}
}

// listenAdmin opens the listener, so that an address in use is found before
// anything else is started.
func listenAdmin(address string, metrics http.Handler, ready func() verdict, redactor config.Redactor, logger *slog.Logger) (*admin, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening the admin listener: %w; free the address or change admin.listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		v := ready()
		status := http.StatusOK
		if !v.Ready {
			status = http.StatusServiceUnavailable
		}
		if v.Reasons == nil {
			v.Reasons = []string{}
		}
		for i, reason := range v.Reasons {
			v.Reasons[i] = redactor.String(reason)
		}
		answer(w, status, v)
	})
	a := &admin{
		server: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		},
		listener: listener,
		ended:    make(chan struct{}),
	}
	go func() {
		defer close(a.ended)
		if err := a.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the admin listener has ended: metrics and health can't be read any more", "error", err)
		}
	}()
	return a, nil
}

func (a *admin) address() string { return a.listener.Addr().String() }

// close ends the listener, waiting a moment for requests under way.
func (a *admin) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		_ = a.server.Close()
	}
	<-a.ended
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
