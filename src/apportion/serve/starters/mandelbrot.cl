// How soon z = z^2 + c escapes: arithmetic, and a loop whose length differs from work-item to work-item.
__kernel void mandelbrot(__global int* steps, const int width, const int height, const int most)
{
    int x = get_global_id(0);
    int y = get_global_id(1);
    float cr = 3.0f * x / width - 2.0f;
    float ci = 2.0f * y / height - 1.0f;
    float zr = 0.0f, zi = 0.0f;
    int step = 0;
    while (step < most && zr * zr + zi * zi < 4.0f) {
        float next = zr * zr - zi * zi + cr;
        zi = 2.0f * zr * zi + ci;
        zr = next;
        step++;
    }
    steps[y * width + x] = step;
}
