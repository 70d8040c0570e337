package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// requestRows are the rows about what HAProxy does for a request.
var requestRows = []row{
	{name: "canaries", what: "processor time of HAProxy for a request, where nearly every second Ingress is a canary by a value of a header", limit: "the same where they are Ingresses like others", goal: 1.5, unit: seconds, most: 2000, measure: shown("canaries", canaryRequests)},
	{name: "canaries-own", what: "the same for a request to a host that has a canary", limit: "the same where they are Ingresses like others", goal: 1.5, unit: seconds, most: 2000, measure: shown("canaries-own", canaryRequests)},
	{name: "traffic", what: "processor time of HAProxy for a request that it passes on to a server", limit: bareConfig, goal: 1.5, unit: seconds, most: 2000, measure: passedOnByIngress},
	{name: "traffic-routes", what: "the same by an HTTPRoute", limit: bareConfig, goal: 1.5, unit: seconds, most: 2000, measure: passedOnByRoute},
}

const (
	countedRequests = 50_000
	pipelined       = 50  // requests that are sent together, so that the kernel's share is small
	clockTicks      = 100 // of /proc, in a second
	costTurns       = 5

	bareConfig    = "the same with a haproxy.cfg of one frontend and one backend, which logs as well"
	serverAddress = "127.0.77.100" // of the server that answers
	bareAddress   = "127.0.77.101" // of the HAProxy with that haproxy.cfg
)

// canaryRequests compares what a request costs among Ingresses without canaries and among as many of which half are canaries.
func canaryRequests(ctx context.Context, w *world) (showing, error) {
	// Of two hosts, one of which keeps its second Ingress. They answer by themselves, so that no server takes time.
	without, with := w.n/4*worlds.PerHost, (w.n/4+1)*worlds.PerHost
	objects := w.objects
	for _, i := range []int{without, with} {
		objects = worlds.Annotate(objects, i, "hapsnap.dev/redirect", "https://elsewhere.example/ 301")
	}
	canaries := worlds.Canaries(objects)
	canaries.Ingresses[without+1] = objects.Ingresses[without+1]
	var took [2][]float64
	for n, in := range []inputs.Inputs{objects, canaries} {
		var err error
		if took[n], err = requestCosts(ctx, w.of(w.n, in), worlds.Host(without), worlds.Host(with)); err != nil {
			return nil, err
		}
	}
	cell := func(host int) Cell {
		return Cell{Limit: took[0][host], Work: took[1][host], Turns: countedRequests}
	}
	return showing{"canaries": cell(0), "canaries-own": cell(1)}, nil
}

// requestCosts returns the processor time of a worker for a request to each of some hosts, in seconds.
func requestCosts(ctx context.Context, w *world, hosts ...string) (out []float64, err error) {
	c, end, err := newChanging(ctx, w, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	client, err := c.edges[0].client()
	if err != nil {
		return nil, err
	}
	info, err := client.RuntimeInfo(ctx)
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		cost, err := requestCost(ctx, info.PID, net.JoinHostPort(c.edges[0].address, strconv.Itoa(httpPort)), host, http.StatusMovedPermanently)
		if err != nil {
			return nil, err
		}
		out = append(out, cost)
	}
	return out, nil
}

// requestCost sends requests for a host on one connection, and returns what each costs a process, in seconds.
func requestCost(ctx context.Context, pid int, address, host string, want int) (float64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	batch := strings.Repeat(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nX-Canary: no\r\n\r\n", host), pipelined)
	for range countedRequests / pipelined {
		if _, err := io.WriteString(conn, batch); err != nil {
			return 0, err
		}
		for range pipelined {
			answer, err := http.ReadResponse(reader, nil)
			if err != nil {
				return 0, err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != want {
				return 0, errors.Join(err, fmt.Errorf("the answer is %s", answer.Status))
			}
		}
	}
	after, err := processorTime(pid)
	return (after - before) / countedRequests, err
}

func passedOnByIngress(ctx context.Context, w *world) (Cell, error) {
	at := w.n / 4 * worlds.PerHost
	objects := worlds.Annotate(w.objects, at, "hapsnap.dev/ssl-redirect", "false")
	return passedOn(ctx, w.of(w.n, objects), at, httpPort)
}

func passedOnByRoute(ctx context.Context, w *world) (Cell, error) {
	r := w.of(w.n, worlds.Routes(w.n))
	r.config.GatewayAPI.Enabled = true
	return passedOn(ctx, r, w.n/4*worlds.PerHost, worlds.GatewayPort)
}

// passedOn compares what a request to the i-th Service costs with what it costs without all that hapsnap writes.
func passedOn(ctx context.Context, w *world, i, port int) (_ Cell, err error) {
	server, err := new(net.ListenConfig).Listen(ctx, "tcp", serverAddress+":8080")
	if err != nil {
		return Cell{}, err
	}
	answers := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })}
	go func() { _ = answers.Serve(server) }()
	defer func() { _ = answers.Close() }()
	w.objects.EndpointSlices = slices.Clone(w.objects.EndpointSlices)
	of := &w.objects.EndpointSlices[i]
	of.Value = of.Value.DeepCopy()
	of.Value.Endpoints = of.Value.Endpoints[:1]
	of.Value.Endpoints[0].Addresses = []string{serverAddress}
	c, end, err := newChanging(ctx, w, 1)
	if err != nil {
		return Cell{}, err
	}
	defer end()
	worker, err := c.edges[0].WorkerPID()
	if err != nil {
		return Cell{}, err
	}
	bare, end, err := w.startBare(ctx)
	if err != nil {
		return Cell{}, err
	}
	defer end()
	var limits, works []float64
	for n := 0; n <= costTurns; n++ {
		limit, err := requestCost(ctx, bare, net.JoinHostPort(bareAddress, strconv.Itoa(httpPort)), worlds.Host(i), http.StatusOK)
		if err != nil {
			return Cell{}, err
		}
		work, err := requestCost(ctx, worker, net.JoinHostPort(c.edges[0].address, strconv.Itoa(port)), worlds.Host(i), http.StatusOK)
		if err != nil {
			return Cell{}, err
		}
		if n > 0 {
			limits, works = append(limits, limit), append(works, work)
		}
	}
	slices.Sort(limits)
	slices.Sort(works)
	return Cell{Limit: limits[len(limits)/2], Work: works[len(works)/2], Turns: costTurns}, nil
}

// startBare starts a HAProxy that passes on all requests, and returns its process.
func (b *bench) startBare(ctx context.Context) (pid int, end func(), err error) {
	path := filepath.Join(b.dir, "bare.cfg")
	text := fmt.Sprintf("global\n  maxconn 1000\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  option httplog\n  option forwardfor\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"+
		"frontend http\n  bind %s:%d\n  default_backend web\nbackend web\n  server one %s:8080\n", bareAddress, httpPort, serverAddress)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return 0, nil, err
	}
	cmd := exec.Command(b.check.Path, "-db", "-f", path) //nolint:gosec,noctx // it was found on PATH, and ends as it is told
	ended, err := child.Start(cmd)
	if err != nil {
		return 0, nil, err
	}
	end = func() { _ = cmd.Process.Kill(); <-ended }
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(bareAddress, strconv.Itoa(httpPort)))
		if err == nil {
			return cmd.Process.Pid, end, conn.Close()
		}
		select {
		case <-ended:
			return 0, nil, errors.New("haproxy ended")
		case <-ctx.Done():
			end()
			return 0, nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// processorTime returns how long a process has used processors, in seconds.
func processorTime(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may have blanks. utime and stime are the 14th and 15th field.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return float64(ticks) / clockTicks, nil
}
