/* Functions whose names the builder chooses, with a call from which nothing is known but the frames. */
typedef void callback(void);

static __attribute__((noinline)) void HIDDEN(callback *f)
{
    f(); /* HERE hidden */
    __asm__ volatile("nop");
}

void FUNCTION(callback *f)
{
    HIDDEN(f);
    __asm__ volatile("nop");
}
