package compiler

import (
	"context"

	"github.com/hapsnap/hapsnap/internal/process"
)

// The stages of a compile and of its publication, in order. Render and validate,
// and translate too, come again for each set of objects that is tried.
const (
	StageRead      = "read"
	StageTranslate = "translate"
	StageRender    = "render"
	StageValidate  = "validate"
	StageDraft     = "draft"
	StagePublish   = "publish"
)

// StageNames are all of them.
var StageNames = []string{StageRead, StageTranslate, StageRender, StageValidate, StageDraft, StagePublish}

// stageTexts are what people are told of them who wait at a terminal.
var stageTexts = map[string]string{
	StageRead: "reading the objects", StageTranslate: "translating the objects", StageRender: "rendering the templates",
	StageValidate: "checking with haproxy", StageDraft: "making the snapshot", StagePublish: "publishing to the store",
}

// Stages gets notice of each stage that begins. It returns the context for the stage, and a
// function to call at its end. It decides nothing. A nil Stages does nothing.
type Stages func(ctx context.Context, name string) (context.Context, func(err error))

// Begin reports the beginning of a stage.
func (s Stages) Begin(ctx context.Context, name string) (context.Context, func(err error)) {
	process.Doing(ctx, "%s", stageTexts[name])
	if s == nil {
		return ctx, func(error) {}
	}
	return s(ctx, name)
}
