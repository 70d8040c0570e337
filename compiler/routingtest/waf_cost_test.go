package routingtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkWAF compares a route without a policy with routes that detect and that block. The agent of the
// project uses the same processors as HAProxy. The benchmark sends requests to all routes in turn, on
// persistent connections, and measures the requests per second of 8 clients and the time per request of one
// client. The requests are a page and a form of a browser. It also reports how many of each the agent inspects
// per second of CPU time.
func BenchmarkWAF(b *testing.B) {
	port := serving(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, "ok")
	})
	a := startWAF(b, "--audit=false")
	e := startWith(b, serviceYAML("shop", "a", port)+wafPolicy("shop", "block", "engine: block")+wafPolicy("shop", "detect", "")+
		all([]ingress{optioned("block", "waf", "block"), optioned("detect", "waf", "detect"), optioned("bare")}), a.use)
	awaitWAF(b, e, "block", "detect", "bare")
	agent := edge{pid: a.cmd.Process.Pid}
	requests := map[string]func(host string) string{
		"page": func(host string) string {
			return visit(host, "/shop/list?page=2&sort=price&q=red+shoes", "Cookie: session=0123456789abcdef; theme=dark")
		},
		"form": func(host string) string {
			return posting(host, "/login", ofForm, "user=jane%40example.com&password=correct+horse")
		},
	}
	for b.Loop() {
		for name, request := range requests {
			rates, waits, inspected := map[string][]float64{}, map[string][]float64{}, []float64{}
			for range 5 {
				for _, host := range []string{"bare", "detect", "block"} {
					before := agent.onCPU(b)
					n, _ := e.hurry(b, request(host), 8)
					rates[host] = append(rates[host], float64(n))
					if host == "block" {
						inspected = append(inspected, float64(n)/time.Duration(agent.onCPU(b)-before).Seconds())
					}
					n, took := e.hurry(b, request(host), 1)
					waits[host] = append(waits[host], took.Seconds()*1000/float64(n))
				}
			}
			for _, host := range []string{"detect", "block"} {
				b.ReportMetric(median(rates[host])/median(rates["bare"]), name+"-"+host+"-rate/bare")
				b.ReportMetric(median(waits[host])-median(waits["bare"]), name+"-"+host+"-ms-more")
			}
			b.ReportMetric(median(inspected), name+"s/agent-CPU-s")
		}
	}
}

// hurry makes clients repeat a request for a second, and returns the number of answers and the time that it
// took.
func (e edge) hurry(b *testing.B, request string, clients int) (answered int, took time.Duration) {
	b.Helper()
	head, body, _ := strings.Cut(request, "\n\n")
	text := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
	var all sync.WaitGroup
	counts := make([]int, clients)
	began := time.Now()
	for i := range clients {
		all.Go(func() {
			c, err := net.Dial("tcp", e.http)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for time.Since(began) < time.Second {
				if _, err := io.WriteString(c, text); err != nil {
					b.Error(err)
					return
				}
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if r.StatusCode != http.StatusOK {
					b.Errorf("the answer is %d", r.StatusCode)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	for _, n := range counts {
		answered += n
	}
	return answered, time.Since(began)
}
