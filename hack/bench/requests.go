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
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// requestRows are the rows about what HAProxy does for a request.
var requestRows = []row{
	{name: "canaries", what: "processor time of HAProxy for a request, where nearly every second Ingress is a canary by a value of a header", limit: "the same where they are Ingresses like others", goal: 1.5, unit: seconds, most: 2000, measure: shown("canaries", canaryRequests)},
	{name: "canaries-own", what: "the same for a request to a host that has a canary", limit: "the same where they are Ingresses like others", goal: 1.5, unit: seconds, most: 2000, measure: shown("canaries-own", canaryRequests)},
}

const (
	countedRequests = 50_000
	pipelined       = 50  // requests that are sent together, so that the kernel's share is small
	clockTicks      = 100 // of /proc, in a second
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
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(c.edges[0].address, strconv.Itoa(httpPort)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for _, host := range hosts {
		before, err := processorTime(info.PID)
		if err != nil {
			return nil, err
		}
		batch := strings.Repeat(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nX-Canary: no\r\n\r\n", host), pipelined)
		for range countedRequests / pipelined {
			if _, err := io.WriteString(conn, batch); err != nil {
				return nil, err
			}
			for range pipelined {
				answer, err := http.ReadResponse(reader, nil)
				if err != nil {
					return nil, err
				}
				_, err = io.Copy(io.Discard, answer.Body)
				if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusMovedPermanently {
					return nil, errors.Join(err, fmt.Errorf("the answer is %s", answer.Status))
				}
			}
		}
		after, err := processorTime(info.PID)
		if err != nil {
			return nil, err
		}
		out = append(out, (after-before)/countedRequests)
	}
	return out, nil
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
