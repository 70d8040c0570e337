// Package browsertest runs a headless Chromium for tests. A test that opens a page fails if the page complains:
// errors on its console, scripts that throw, and violations of its Content-Security-Policy.
//
// `make test` installs Debian's package chromium. It puts axe-core, which finds obstacles for people with a
// screen reader or weak eyes, into build/axe. AXE_CORE names another file. A test fails if either is missing.
//
// The browser reaches loopback only: its own background requests are turned off. It ends with the test that
// started it.
package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// Patience is how long a test waits for the content of a page. Machines that run tests are busy.
const Patience = time.Minute

// Browser is a Chromium.
type Browser struct{ ctx context.Context } //nolint:containedctx // a browser of chromedp is a context

// Start starts a browser, which ends with the test.
func Start(tb testing.TB) *Browser {
	tb.Helper()
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-extensions", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("no-proxy-server", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(2*Patience),
	)
	tb.Cleanup(cancel)
	ctx, end := chromedp.NewContext(allocator)
	tb.Cleanup(end)
	started := make(chan error, 1)
	go func() { started <- chromedp.Run(ctx) }()
	select {
	case err := <-started:
		if err != nil {
			tb.Fatalf("start Chromium: %v\n\thint: make test-deps installs it", err)
		}
	case <-time.After(2 * Patience):
		tb.Fatal("Chromium does not start")
	}
	return &Browser{ctx}
}

// Options say how a viewer sees a page.
type Options struct {
	Dark          bool // the viewer likes dark pages
	WithoutScript bool // the viewer allows no JavaScript
	Width, Height int  // 1280 by 900 if zero
}

// Page is a window of its own, with cookies and a cache of its own.
type Page struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // a page of chromedp is a context

	mu       sync.Mutex
	errors   []string
	expected []string // parts of expected errors
}

// Page opens a window, which is closed at the end of the test. The test fails then if the page has complained.
func (b *Browser) Page(tb testing.TB, o Options) *Page {
	tb.Helper()
	ctx, end := b.window(tb)
	p := &Page{t: tb, ctx: ctx}
	tb.Cleanup(func() {
		end()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range p.errors {
			tb.Errorf("the page complains: %s", e)
		}
	})
	chromedp.ListenTarget(ctx, p.hear)
	p.run("open a window", log.Enable(), runtime.Enable(), network.Enable(), page.Enable(), emulation.SetScriptExecutionDisabled(o.WithoutScript))
	p.Look(o)
	return p
}

// Look changes the viewer's colours or size. The page stays.
func (p *Page) Look(o Options) {
	p.t.Helper()
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	if o.Width == 0 {
		o.Width, o.Height = 1280, 900
	}
	p.run("look", emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.EmulateViewport(int64(o.Width), int64(o.Height)))
}

// window opens a window with a profile of its own. chromedp cannot ask for one, and a headless Chromium makes a
// page of another profile only in a new window.
func (b *Browser) window(tb testing.TB) (context.Context, func()) {
	tb.Helper()
	browser, cancel := context.WithTimeout(cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser), 2*Patience)
	defer cancel()
	profile, err := target.CreateBrowserContext().Do(browser)
	if err != nil {
		tb.Fatalf("make a profile: %v", err)
	}
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(browser)
	if err != nil {
		tb.Fatalf("open a window: %v", err)
	}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	return ctx, func() {
		end()
		browser, cancel := context.WithTimeout(cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser), Patience)
		defer cancel()
		_ = target.DisposeBrowserContext(profile).Do(browser) // it may be closed with the browser
	}
}

// hear records the complaints of a page.
func (p *Page) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			p.complain("console: " + strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		p.complain("exception: " + e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Source == log.SourceSecurity {
			p.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

func (p *Page) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	p.errors = append(p.errors, text)
}

// Expect lists parts of complaints that are expected. Call it before they occur.
func (p *Page) Expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

// Complaints returns the complaints of the page so far, and forgets them.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.errors
	p.errors = nil
	return out
}

func (p *Page) run(what string, actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*Patience)
	defer cancel()
	// The first run of a context starts the browser or page, which must outlive this call.
	if chromedp.FromContext(p.ctx).Target == nil {
		ctx = p.ctx
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// Open loads a page.
func (p *Page) Open(url string) {
	p.t.Helper()
	p.run("open "+url, chromedp.Navigate(url))
}

// Is evaluates a script on the page, and reports whether its result is true.
func (p *Page) Is(script string) bool {
	p.t.Helper()
	var is bool
	p.Eval(script, &is)
	return is
}

// Eval evaluates a script on the page, and waits for a promise. If the page is left for another one meanwhile,
// the answer is lost, and Eval asks the new page.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	p.act("evaluate "+script[:min(len(script), 100)], chromedp.Evaluate(script, into, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
}

// pace is the time between two evaluations on a page.
const pace = 20 * time.Millisecond

// Wait waits until a script returns true, on whichever page is open then.
func (p *Page) Wait(script string) {
	p.t.Helper()
	for end := time.Now().Add(Patience); !p.Is(script); {
		if time.Now().After(end) {
			p.t.Fatalf("%s was not so in %v; the page:\n%s", script, Patience, p.Text("body"))
		}
		<-time.After(pace)
	}
}

// WaitText waits until the element of a selector contains a text.
func (p *Page) WaitText(selector, text string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf("(document.querySelector(%s)?.textContent ?? '').includes(%s)", quoted(selector), quoted(text)))
}

// Text returns the text of the first element of a selector, unstyled; "" if there is none.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	p.Eval(fmt.Sprintf("document.querySelector(%s)?.textContent ?? ''", quoted(selector)), &text)
	return text
}

// Click clicks on the first element of a selector.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.act("click "+selector, chromedp.Click(selector, chromedp.ByQuery))
}

// Type types into the first element of a selector. A text that ends in "\r" may lead to another page.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.act("type into "+selector, chromedp.Focus(selector, chromedp.ByQuery))
	ctx, cancel := context.WithTimeout(p.ctx, 2*Patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.KeyEvent(text)); err != nil && (!left(err) || !strings.HasSuffix(text, "\r")) {
		p.t.Fatalf("type: %v", err)
	}
}

// act acts on the page. It acts again if the page is left for another one, or replaces an element, at the same
// time.
func (p *Page) act(what string, action chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*Patience)
	defer cancel()
	for {
		err := chromedp.Run(ctx, action)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || !left(err) && !replaced(err):
			p.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(pace)
	}
}

// left reports whether an error says that the page was left for another one before it could answer. Chromium
// has several texts for that.
func left(err error) bool {
	return slices.ContainsFunc([]string{
		"Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context with specified id", "Cannot find default execution context", "uniqueContextId not found", "Promise was collected",
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// replaced reports whether an error says that an element was removed from the page.
func replaced(err error) bool { return strings.Contains(err.Error(), "node") }

func quoted(text string) string {
	out, _ := json.Marshal(text) // it is a string
	return string(out)
}

// Picture writes a picture of the whole page as a PNG.
func (p *Page) Picture(file string) {
	p.t.Helper()
	var png []byte
	p.run("take a picture", chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(file, png, 0o644); err != nil { //nolint:gosec // it is for documentation
		p.t.Fatal(err)
	}
}

// Violation is a rule of accessibility that a page breaks.
type Violation struct {
	ID    string
	Help  string
	Nodes []struct{ HTML, FailureSummary string }
}

// Accessible fails the test for each rule of WCAG 2.2, levels A and AA, and of good practice, that the page
// breaks.
func (p *Page) Accessible() {
	p.t.Helper()
	var found struct{ Violations []Violation }
	// The page is checked as it was loaded: its own scripts do not start now.
	p.run("allow scripts", emulation.SetScriptExecutionDisabled(false))
	if !p.Is("'axe' in window") { // it takes longer to load than to run
		p.run("load axe-core", chromedp.Evaluate(axe(p.t)+";true", nil))
	}
	p.Eval("axe.run(document, {resultTypes: ['violations']}).then((r) => ({violations: r.violations}))", &found)
	for _, v := range found.Violations {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: %s\n%s\n%s", v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}

var source struct {
	sync.Once
	text string
	err  error
}

// axe returns the script of axe-core.
func axe(tb testing.TB) string {
	tb.Helper()
	source.Do(func() {
		file := os.Getenv("AXE_CORE")
		if file == "" {
			file = found("build/axe/axe.min.js")
		}
		text, err := os.ReadFile(file)
		source.text, source.err = string(text), err
	})
	if source.err != nil {
		tb.Fatalf("%v\n\thint: make browser", source.err)
	}
	return source.text
}

// found returns the path of a file of the checkout, from the folder of any package.
func found(file string) string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, file)
		}
		dir = filepath.Dir(dir)
	}
	return file
}
