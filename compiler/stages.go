package compiler

import "context"

// The stages of a compile and of its publication, in order. Render and validate,
// and translate too, come again for each set of objects that is tried.
const (
	stageRead      = "read"
	stageTranslate = "translate"
	stageRender    = "render"
	stageValidate  = "validate"
	stageDraft     = "draft"
	stagePublish   = "publish"
)

// stageNames are all of them.
var stageNames = []string{stageRead, stageTranslate, stageRender, stageValidate, stageDraft, stagePublish}

// Stages is told of each stage that begins, and returns the context for it and
// what is to be told of its end. It decides nothing. Nil listens to nothing.
type Stages func(ctx context.Context, name string) (context.Context, func(err error))

// begin tells of a stage.
func (s Stages) begin(ctx context.Context, name string) (context.Context, func(err error)) {
	if s == nil {
		return ctx, func(error) {}
	}
	return s(ctx, name)
}
